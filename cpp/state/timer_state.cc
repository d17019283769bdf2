// Timers: (key, time, namespace), each an entry of its own in order of time. Registering and deleting read nothing.
#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "codec/array_builder.h"
#include "codec/array_view.h"
#include "codec/index_hash.h"
#include "codec/value_header.h"
#include "state/due_timers.h"
#include "state/key_reader.h"
#include "state/listed_timers.h"
#include "state/states.h"
#include "state/timer_key.h"

namespace holdfast {

namespace {

Type TimeType() { return Type::Field(TypeId::kInt64, "time", sizeof(int64_t), /*nullable=*/false); }
Type NamespaceType() { return Type::Field(TypeId::kString, "namespace", 0, /*nullable=*/false); }

Status CheckNoNulls(const ArrayView& view, const char* argument) {
  if (!view.has_nulls() || view.FirstNull() == view.length()) return Status::Ok();
  return Status::InvalidRequest(std::string(argument) + " has a null in row " + std::to_string(view.FirstNull()) +
                                "; a timer has a time, and a namespace, which may be empty");
}

class Timers final : public TimerTable {
 public:
  Timers(SlotStore* store, Table* table) : store_(store), table_(table), due_(table) {}

  Status Register(const OwnedArray& keys, const OwnedArray& times, const OwnedArray& namespaces) override {
    return store_->Run({"register", table_, Access::kWrite}, [&]() -> Status {
      return ForEachTimer(keys, times, namespaces,
                          [&](Entry* entry) { table_->PutIfAbsent(entry, value_header::kRowPrefix); });
    });
  }

  Status Delete(const OwnedArray& keys, const OwnedArray& times, const OwnedArray& namespaces) override {
    return store_->Run({"delete", table_, Access::kWrite}, [&]() -> Status {
      return ForEachTimer(keys, times, namespaces, [&](Entry* entry) { table_->Remove(entry); });
    });
  }

  Result<OwnedArray> TakeDue(int64_t until, int64_t limit) override {
    return store_->Run({"take_due", table_, Access::kWrite}, [&]() -> Result<OwnedArray> {
      if (limit < 1) return Status::InvalidRequest("limit: expected at least 1, found " + std::to_string(limit));
      HOLDFAST_ASSIGN_OR_RETURN(const std::span<const DueTimers::Timer> due,
                                due_.Take(store_->base(), until, static_cast<size_t>(limit)));
      Remove(due);
      return Columns(due);
    });
  }

  Result<std::optional<int64_t>> NextDue() override {
    return store_->Run({"next_due", table_, Access::kRead},
                       [&]() -> Result<std::optional<int64_t>> { return due_.NextTime(store_->base()); });
  }

  Result<OwnedArray> List(const OwnedArray& keys) override {
    return store_->Run({"list", table_, Access::kRead}, [&]() -> Result<OwnedArray> { return ListOf(keys); });
  }

 private:
  void Remove(std::span<const DueTimers::Timer> timers) {
    std::array<uint64_t, KeyReader::kBlockRows> hashes;
    for (size_t begin = 0; begin < timers.size(); begin += hashes.size()) {
      const auto block = timers.subspan(begin, std::min(hashes.size(), timers.size() - begin));
      for (size_t i = 0; i < block.size(); ++i) {
        hashes[i] = IndexHash(block[i].key);
        table_->PrefetchIndex(hashes[i]);
      }
      for (size_t i = 0; i < block.size(); ++i) table_->PrefetchEntry(hashes[i]);
      for (size_t i = 0; i < block.size(); ++i) {
        table_->Remove(table_->Intern({block[i].key, hashes[i], block[i].key_group}));
      }
    }
  }

  // Calls visit(entry) for the timer of each row in order; it may be unknown whether it is there.
  template <typename Visit>
  Status ForEachTimer(const OwnedArray& keys, const OwnedArray& times, const OwnedArray& namespaces, Visit visit) {
    HOLDFAST_RETURN_IF_ERROR(CheckRows(times, keys, "times"));
    HOLDFAST_RETURN_IF_ERROR(CheckRows(namespaces, keys, "namespaces"));
    const Type time_type = TimeType();
    const Type namespace_type = NamespaceType();
    HOLDFAST_ASSIGN_OR_RETURN(const ArrayView time, ArrayView::Make(time_type, times.schema(), times.array()));
    HOLDFAST_ASSIGN_OR_RETURN(const ArrayView name,
                              ArrayView::Make(namespace_type, namespaces.schema(), namespaces.array()));
    HOLDFAST_RETURN_IF_ERROR(CheckNoNulls(time, "times"));
    HOLDFAST_RETURN_IF_ERROR(CheckNoNulls(name, "namespaces"));
    HOLDFAST_ASSIGN_OR_RETURN(KeyReader reader, KeyReader::Make(*store_, keys));
    store_->engine()->CountLookups(reader.length());
    ByteColumn stored;
    std::array<uint64_t, KeyReader::kBlockRows> hashes;
    for (int64_t begin = 0; begin < reader.length(); begin += KeyReader::kBlockRows) {
      const int64_t rows = std::min(KeyReader::kBlockRows, reader.length() - begin);
      HOLDFAST_RETURN_IF_ERROR(reader.Read(begin, begin + rows));
      HOLDFAST_RETURN_IF_ERROR(reader.FindGroups());
      stored.Clear();
      for (int64_t i = 0; i < rows; ++i) {
        AppendTimer(time.Value<int64_t>(begin + i), reader.key(i), name.Bytes(begin + i), &stored);
      }
      HOLDFAST_RETURN_IF_ERROR(CheckSizes(stored, begin, "timer"));
      for (int64_t i = 0; i < rows; ++i) {
        hashes[static_cast<size_t>(i)] = IndexHash(stored[i]);
        table_->PrefetchIndex(hashes[static_cast<size_t>(i)]);
      }
      for (int64_t i = 0; i < rows; ++i) table_->PrefetchEntry(hashes[static_cast<size_t>(i)]);
      for (int64_t i = 0; i < rows; ++i) {
        visit(table_->Intern({stored[i], hashes[static_cast<size_t>(i)], reader[i].key_group}));
      }
    }
    return Status::Ok();
  }

  static void AppendTimer(int64_t time, Slice key, Slice name, ByteColumn* stored) {
    const size_t at = stored->bytes.size();
    stored->bytes.resize(at + layout::kTimeBytes);
    timer_key::PutTime(time, stored->bytes.data() + at);
    stored->bytes.insert(stored->bytes.end(), key.begin(), key.end());
    stored->bytes.insert(stored->bytes.end(), name.begin(), name.end());
    stored->offsets.push_back(static_cast<int64_t>(stored->bytes.size()));
  }

  // The encoded key of a stored timer: what follows the time, up to the namespace.
  Result<Slice> KeyOf(Slice timer, uint16_t key_group) const {
    if (timer.size() >= layout::kTimeBytes) {
      const Slice rest = timer.substr(layout::kTimeBytes);
      const Result<size_t> length = store_->key_codec().EncodedLength(rest);
      if (length.ok()) return rest.substr(0, length.value());
    }
    return Status::Corrupt("state " + std::to_string(table_->state_id()) + ", key group " + std::to_string(key_group) +
                           ": a stored timer cannot be read; restore from another version");
  }

  Result<OwnedArray> Columns(std::span<const DueTimers::Timer> due) const {
    Type type;
    type.id = TypeId::kStruct;
    type.children = {store_->key_codec().type(), TimeType(), NamespaceType()};
    type.children[0].name = "key";
    type.children[0].nullable = false;
    std::vector<Slice> keys;
    std::vector<int64_t> times;
    ArrayBuilder names(NamespaceType());
    keys.reserve(due.size());
    times.reserve(due.size());
    for (const DueTimers::Timer& timer : due) {
      HOLDFAST_ASSIGN_OR_RETURN(const Slice key, KeyOf(timer.key, timer.key_group));
      keys.push_back(key);
      times.push_back(timer_key::Time(timer.key));
      names.AppendBytes(timer.key.substr(layout::kTimeBytes + key.size()));
    }
    const auto rows = static_cast<int64_t>(keys.size());
    std::vector<OwnedArray> columns;
    HOLDFAST_ASSIGN_OR_RETURN(OwnedArray decoded, store_->key_codec().Decode(keys));
    columns.push_back(std::move(decoded));
    columns.push_back(MakeFixedWidth(type.children[1], std::move(times)));
    HOLDFAST_ASSIGN_OR_RETURN(OwnedArray name_column, names.Finish());
    columns.push_back(std::move(name_column));
    return MakeStruct(type, rows, std::move(columns));
  }

  // Timers by key, of the keys asked for. The time stands before the key: all of a key group's are read.
  Result<OwnedArray> ListOf(const OwnedArray& keys) {
    HOLDFAST_ASSIGN_OR_RETURN(KeyReader reader, KeyReader::Make(*store_, keys));
    store_->engine()->CountLookups(reader.length());
    ListedTimers found;
    std::set<uint16_t> key_groups;
    std::vector<const ListedTimers::Asked*> rows;
    for (int64_t begin = 0; begin < reader.length(); begin += KeyReader::kBlockRows) {
      HOLDFAST_RETURN_IF_ERROR(reader.Read(begin, std::min(begin + KeyReader::kBlockRows, reader.length())));
      HOLDFAST_RETURN_IF_ERROR(reader.FindGroups());
      for (int64_t i = 0; i < reader.block_rows(); ++i) {
        rows.push_back(found.Ask(reader.key(i), reader.hash(i)));
        key_groups.insert(reader[i].key_group);
      }
    }
    for (const uint16_t key_group : key_groups) {
      const std::string lower(due_.LowerBound(key_group));
      HOLDFAST_ASSIGN_OR_RETURN(
          OrderedCursor cursor,
          OrderedCursor::Make(table_, store_->base(), {key_group, static_cast<uint16_t>(key_group + 1), lower, {}}));
      for (; cursor.Valid();) {
        HOLDFAST_ASSIGN_OR_RETURN(const Slice key, KeyOf(cursor.key(), key_group));
        if (ListedTimers::Asked* const asked = found.Find(key, IndexHash(key)); asked != nullptr) {
          asked->timers.push_back(
              {timer_key::Time(cursor.key()), std::string(cursor.key().substr(layout::kTimeBytes + key.size()))});
        }
        HOLDFAST_RETURN_IF_ERROR(cursor.Next());
      }
    }
    return Lists(rows);
  }

  static Result<OwnedArray> Lists(const std::vector<const ListedTimers::Asked*>& rows) {
    Type item;
    item.id = TypeId::kStruct;
    item.name = "item";
    item.nullable = false;
    item.children = {TimeType(), NamespaceType()};
    Type list;
    list.id = TypeId::kList;
    list.children = {item};
    ArrayBuilder builder(list);
    for (const ListedTimers::Asked* row : rows) {
      for (const ListedTimers::Timer& timer : row->timers) {
        builder.child(0).child(0).AppendFixed(reinterpret_cast<const char*>(&timer.time));
        builder.child(0).child(1).AppendBytes(timer.name);
        builder.child(0).AppendStruct();
      }
      builder.AppendList();
    }
    return builder.Finish();
  }

  SlotStore* store_;
  Table* table_;
  DueTimers due_;
};

}  // namespace

Result<std::unique_ptr<TimerTable>> MakeTimers(SlotStore* store, Table* table) {
  table->ExpectWidth(0);
  return std::unique_ptr<TimerTable>(std::make_unique<Timers>(store, table));
}

}  // namespace holdfast
