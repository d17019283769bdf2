// Map states: each entry is a key of its own, under the operator's key and the encoded map key.
#include <algorithm>

#include "codec/array_builder.h"
#include "codec/key_encoder.h"
#include "codec/value_header.h"
#include "state/element_keys.h"
#include "state/key_text.h"
#include "state/states.h"
#include "state/stored_rows.h"

namespace holdfast {

namespace {

class MapState final : public MapTable {
 public:
  MapState(SlotStore* store, Table* table, KeyCodec map_keys, RowCodec map_values)
      : store_(store), table_(table), map_keys_(std::move(map_keys)), map_values_(std::move(map_values)) {
    type_.id = TypeId::kMap;
    type_.children = {map_keys_.type(), map_values_.type()};
    type_.children[0].name = "key";
    type_.children[0].nullable = false;
    type_.children[1].name = "value";
    type_.children[1].nullable = true;
  }

  Result<OwnedArray> Get(const OwnedArray& keys, const OwnedArray& map_keys) override {
    return store_->Run({"get", table_, Access::kRead}, [&]() -> Result<OwnedArray> {
      std::vector<const Entry*> entries;
      HOLDFAST_RETURN_IF_ERROR(ReadPoints(keys, map_keys, &entries));
      return DecodeValues(map_values_, table_->state_id(), entries);
    });
  }

  Result<OwnedArray> Contains(const OwnedArray& keys, const OwnedArray& map_keys) override {
    return store_->Run({"contains", table_, Access::kRead}, [&]() -> Result<OwnedArray> {
      std::vector<const Entry*> entries;
      HOLDFAST_RETURN_IF_ERROR(ReadPoints(keys, map_keys, &entries));
      std::vector<uint8_t> present(entries.size());
      for (size_t i = 0; i < entries.size(); ++i) present[i] = entries[i]->present() ? 1 : 0;
      return MakeBool(present);
    });
  }

  Status Put(const OwnedArray& keys, const OwnedArray& map_keys, const OwnedArray& map_values) override {
    return store_->Run({"put", table_, Access::kWrite}, [&]() -> Status {
      HOLDFAST_RETURN_IF_ERROR(CheckRows(map_values, keys, "map_values"));
      ByteColumn rows;
      std::vector<bool> nulls;
      HOLDFAST_RETURN_IF_ERROR(
          map_values_.Encode(map_values.schema(), map_values.array(), value_header::kRowPrefix, &rows, &nulls));
      HOLDFAST_RETURN_IF_ERROR(CheckSizes(rows, 0, "map value"));
      return ForEachPoint(keys, map_keys, [&](int64_t row, Entry* entry) {
        table_->Put(entry, nulls[static_cast<size_t>(row)] ? value_header::kNullValue : rows[row]);
      });
    });
  }

  Status Remove(const OwnedArray& keys, const OwnedArray& map_keys) override {
    return store_->Run({"remove", table_, Access::kWrite}, [&]() -> Status {
      return ForEachPoint(keys, map_keys, [&](int64_t /*row*/, Entry* entry) { table_->Remove(entry); });
    });
  }

  Result<OwnedArray> Entries(const OwnedArray& keys) override {
    return store_->Run({"entries", table_, Access::kRead}, [&]() -> Result<OwnedArray> {
      HOLDFAST_ASSIGN_OR_RETURN(const std::vector<HeadKey> heads, LoadElements(store_, table_, keys, ScanFor::kValues));
      const Elements elements = CollectElements(table_, heads);
      std::vector<Slice> encoded(elements.entries.size());
      for (size_t i = 0; i < heads.size(); ++i) {
        for (int64_t j = elements.offsets[i]; j < elements.offsets[i + 1]; ++j) {
          const auto at = static_cast<size_t>(j);
          encoded[at] = elements.entries[at]->key().substr(heads[i].head->key_length);
        }
      }
      HOLDFAST_ASSIGN_OR_RETURN(OwnedArray map_keys, DecodeMapKeys(encoded));
      HOLDFAST_ASSIGN_OR_RETURN(OwnedArray map_values, DecodeValues(map_values_, table_->state_id(), elements.entries));
      return MakeMap(type_, elements.offsets, std::move(map_keys), std::move(map_values));
    });
  }

  Result<OwnedArray> Count(const OwnedArray& keys) override {
    return store_->Run({"count", table_, Access::kRead}, [&]() -> Result<OwnedArray> {
      HOLDFAST_ASSIGN_OR_RETURN(const std::vector<HeadKey> heads, LoadElements(store_, table_, keys, ScanFor::kValues));
      std::vector<int64_t> counts(heads.size(), 0);
      for (size_t i = 0; i < heads.size(); ++i) {
        table_->SettleItems(heads[i].head, /*refresh=*/true);
        const Head& head = *heads[i].head;
        counts[i] =
            std::count_if(head.items, head.items + head.count, [](const Entry* entry) { return entry->present(); });
      }
      return MakeFixedWidth(Type::Field(TypeId::kInt64, "", sizeof(int64_t), true), std::move(counts));
    });
  }

  Status Clear(const OwnedArray& keys) override { return ClearElements(store_, table_, keys); }

 private:
  // Calls visit(row, entry) for each row in order. Reads nothing.
  template <typename Visit>
  Status ForEachPoint(const OwnedArray& keys, const OwnedArray& map_keys, Visit visit) {
    HOLDFAST_RETURN_IF_ERROR(CheckRows(map_keys, keys, "map_keys"));
    HOLDFAST_ASSIGN_OR_RETURN(const KeyEncoder encoder, KeyEncoder::Make(map_keys_.type(), map_keys_.allow_null(),
                                                                         map_keys.schema(), map_keys.array()));
    HOLDFAST_ASSIGN_OR_RETURN(KeyReader reader, KeyReader::Make(*store_, *table_, keys));
    store_->engine()->CountLookups(reader.length());
    ByteColumn suffixes;
    for (int64_t begin = 0; begin < reader.length(); begin += KeyReader::kBlockRows) {
      const int64_t rows = std::min(KeyReader::kBlockRows, reader.length() - begin);
      HOLDFAST_RETURN_IF_ERROR(reader.Read(begin, begin + rows));
      HOLDFAST_RETURN_IF_ERROR(reader.FindGroups());
      suffixes.Clear();
      encoder.Append(begin, begin + rows, &suffixes);
      HOLDFAST_RETURN_IF_ERROR(CheckSizes(suffixes, begin, "map key"));
      for (int64_t i = 0; i < rows; ++i) table_->PrefetchIndex(Table::ElementHash(reader.hash(i), suffixes[i]));
      for (int64_t i = 0; i < rows; ++i) table_->PrefetchEntry(Table::ElementHash(reader.hash(i), suffixes[i]));
      for (int64_t i = 0; i < rows; ++i) visit(begin + i, table_->InternElement(reader[i], suffixes[i]));
    }
    return Status::Ok();
  }

  Status ReadPoints(const OwnedArray& keys, const OwnedArray& map_keys, std::vector<const Entry*>* entries) {
    std::vector<Entry*> unknown;
    std::vector<Entry*> points;
    points.reserve(static_cast<size_t>(keys.length()));
    Status status = ForEachPoint(keys, map_keys, [&](int64_t /*row*/, Entry* entry) {
      points.push_back(entry);
      if ((entry->flags & (Entry::kKnown | Entry::kAsked)) != 0) return;
      entry->flags |= Entry::kAsked;
      unknown.push_back(entry);
    });
    if (!status.ok()) {
      for (Entry* entry : unknown) entry->flags = static_cast<uint16_t>(entry->flags & ~Entry::kAsked);
      return status;
    }
    HOLDFAST_RETURN_IF_ERROR(ReadEntries(store_->base(), table_, &unknown, store_->read_counters()));
    if (table_->settles()) {
      for (Entry* entry : points) table_->Settle(entry, /*refresh=*/true);
    }
    entries->assign(points.begin(), points.end());
    return Status::Ok();
  }

  Result<OwnedArray> DecodeMapKeys(const std::vector<Slice>& encoded) const {
    Result<OwnedArray> map_keys = map_keys_.Decode(encoded);
    if (map_keys.ok()) return map_keys;
    return Status::Corrupt("state " + std::to_string(table_->state_id()) + ": a stored map key cannot be read: " +
                           map_keys.status().message() + "; restore from another version");
  }

  SlotStore* store_;
  Table* table_;
  KeyCodec map_keys_;
  RowCodec map_values_;
  Type type_;
};

}  // namespace

Result<std::unique_ptr<MapTable>> MakeMapState(SlotStore* store, Table* table, const Type& map_key,
                                               const Type& map_value) {
  HOLDFAST_ASSIGN_OR_RETURN(KeyCodec keys, KeyCodec::Make(map_key, /*allow_null=*/false));
  HOLDFAST_ASSIGN_OR_RETURN(RowCodec values, RowCodec::Make(map_value));
  if (values.fixed_width() > 0) table->ExpectWidth(values.fixed_width());
  return std::unique_ptr<MapTable>(std::make_unique<MapState>(store, table, std::move(keys), std::move(values)));
}

}  // namespace holdfast
