#include "codec/row_resolver.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "codec/row_format.h"

namespace holdfast {

using row_format::BitmapBytes;

// How values of one type become values of another.
struct RowResolver::Plan {
  enum class Way : uint8_t {
    kCopy,      // the same bytes
    kSigned,    // a wider integer
    kUnsigned,  // a wider one of an unsigned
    kFloat,     // float to double
    kList,
    kMap,
    kStruct,
  };
  struct Field {
    int32_t source = -1;               // its number in the writer's schema
    std::optional<std::string> value;  // without a source: none is null
    std::unique_ptr<Plan> plan;        // with one
  };

  Way way = Way::kCopy;
  Type writer;
  size_t reader_bytes = 0;  // of a wider number
  std::vector<Plan> children;
  std::vector<Field> fields;  // of structs, in the reader's order
};

namespace {

using Plan = RowResolver::Plan;
using Way = Plan::Way;

bool IsSigned(TypeId id) { return id >= TypeId::kInt8 && id <= TypeId::kInt64; }
bool IsUnsigned(TypeId id) { return id >= TypeId::kUInt8 && id <= TypeId::kUInt64; }

// Types without children.
std::optional<Way> WayOf(const Type& writer, const Type& reader) {
  if (writer.id == reader.id) {
    const bool same = writer.byte_width == reader.byte_width && writer.scale == reader.scale &&
                      writer.unit == reader.unit && writer.precision <= reader.precision;
    return same ? std::optional(Way::kCopy) : std::nullopt;
  }
  const bool wider = reader.byte_width > writer.byte_width;
  if (wider && IsSigned(writer.id) && IsSigned(reader.id)) return Way::kSigned;
  if (wider && IsUnsigned(writer.id) && (IsUnsigned(reader.id) || IsSigned(reader.id))) return Way::kUnsigned;
  if (writer.id == TypeId::kFloat && reader.id == TypeId::kDouble) return Way::kFloat;
  return std::nullopt;
}

class Planner {
 public:
  explicit Planner(std::span<const FieldDefault> defaults) : defaults_(defaults) {}

  Result<Plan> Make(const Type& writer, const Type& reader) {
    Plan plan;
    plan.writer = writer;
    plan.reader_bytes = static_cast<size_t>(reader.byte_width);
    const bool nested = !writer.children.empty() || writer.id == TypeId::kStruct;
    if (!nested || writer.id != reader.id) {
      const std::optional<Way> way = WayOf(writer, reader);
      if (!way.has_value() || nested) return Refused(reader, writer.ToString() + " does not become it");
      plan.way = *way;
      return plan;
    }
    if (writer.id == TypeId::kStruct) return OfStruct(std::move(plan), reader);
    plan.way = writer.id == TypeId::kMap ? Way::kMap : Way::kList;
    bool copies = true;
    for (size_t i = 0; i < writer.children.size(); ++i) {
      HOLDFAST_ASSIGN_OR_RETURN(Plan child, Child(i, writer.children[i], reader.children[i]));
      copies = copies && child.way == Way::kCopy;
      plan.children.push_back(std::move(child));
    }
    if (copies) plan.way = Way::kCopy;
    return plan;
  }

 private:
  static Status Refused(const Type& reader, const std::string& what) {
    return Status::InvalidRequest((reader.name.empty() ? "" : "field '" + reader.name + "' of ") + reader.ToString() +
                                  ": " + what);
  }

  Result<Plan> Child(size_t number, const Type& writer, const Type& reader) {
    if (writer.nullable && !reader.nullable) return Refused(reader, "earlier values may be null");
    path_.push_back(static_cast<int32_t>(number));
    Result<Plan> plan = Make(writer, reader);
    path_.pop_back();
    return plan;
  }

  Result<Plan> OfStruct(Plan plan, const Type& reader) {
    const std::vector<Type>& sources = plan.writer.children;
    bool copies = sources.size() == reader.children.size();
    for (size_t i = 0; i < reader.children.size(); ++i) {
      const Type& child = reader.children[i];
      const auto found =
          std::find_if(sources.begin(), sources.end(), [&](const Type& field) { return field.name == child.name; });
      Plan::Field field;
      if (found == sources.end()) {
        field.value = DefaultOf(i);
        if (!field.value.has_value() && !child.nullable) return Refused(child, "earlier rows have none, nor a default");
      } else {
        field.source = static_cast<int32_t>(found - sources.begin());
        HOLDFAST_ASSIGN_OR_RETURN(Plan made, Child(i, *found, child));
        copies = copies && made.way == Way::kCopy && field.source == static_cast<int32_t>(i);
        field.plan = std::make_unique<Plan>(std::move(made));
      }
      copies = copies && field.source >= 0;
      plan.fields.push_back(std::move(field));
    }
    plan.way = copies ? Way::kCopy : Way::kStruct;
    return plan;
  }

  std::optional<std::string> DefaultOf(size_t number) {
    path_.push_back(static_cast<int32_t>(number));
    const auto found =
        std::find_if(defaults_.begin(), defaults_.end(), [this](const FieldDefault& one) { return one.path == path_; });
    path_.pop_back();
    return found == defaults_.end() ? std::nullopt : std::optional(found->row);
  }

  std::span<const FieldDefault> defaults_;
  std::vector<int32_t> path_;
};

// Walks one row of the writer's schema. Every length is checked against the bytes that are left before it is used.
class Walk {
 public:
  Walk(Slice row, std::string* out) : start_(row.data()), next_(row.data()), end_(row.data() + row.size()), out_(out) {}

  size_t left() const { return static_cast<size_t>(end_ - next_); }
  bool too_large() const { return out_->size() > RowResolver::kRowBytesMax; }
  std::string error() const { return error_ + " at byte " + std::to_string(next_ - start_); }

  // One value that is not null, appended as the reader has it.
  bool Take(const Plan& plan) {
    switch (plan.way) {
      case Way::kCopy: {
        const char* const begin = next_;
        if (!Skip(plan.writer)) return false;
        out_->append(begin, static_cast<size_t>(next_ - begin));
        return true;
      }
      case Way::kList:
        return TakeList(plan);
      case Way::kMap:
        return TakeMap(plan);
      case Way::kStruct:
        return TakeStruct(plan);
      default:
        return TakeNumber(plan);
    }
  }

 private:
  bool Fail(std::string what) {
    error_ = std::move(what);
    return false;
  }

  const char* Bytes(size_t size) {
    if (left() < size) {
      Fail("it is cut off");
      return nullptr;
    }
    const char* const bytes = next_;
    next_ += size;
    return bytes;
  }

  bool Count(uint64_t* count) {
    const char* const after = row_format::GetVarint(next_, end_, count);
    if (after == nullptr) return Fail("a length is no varint in its shortest form");
    next_ = after;
    return true;
  }

  static bool Bit(const char* bitmap, size_t i) { return ((static_cast<uint8_t>(bitmap[i >> 3]) >> (i & 7)) & 1) != 0; }

  bool Skip(const Type& type) {
    uint64_t count = 0;
    switch (type.id) {
      case TypeId::kString:
      case TypeId::kBinary:
        return Count(&count) && Bytes(count) != nullptr;
      case TypeId::kStruct: {
        const char* const nulls = Bytes(BitmapBytes(type.children.size()));
        if (nulls == nullptr) return false;
        for (size_t i = 0; i < type.children.size(); ++i) {
          if (!Bit(nulls, i) && !Skip(type.children[i])) return false;
        }
        return true;
      }
      case TypeId::kList:
        return SkipList(type.children[0]);
      case TypeId::kMap:
        if (!Count(&count)) return false;
        for (uint64_t i = 0; i < count; ++i) {
          bool null = false;
          if (!Skip(type.children[0]) || !Marker(&null) || (!null && !Skip(type.children[1]))) return false;
        }
        return true;
      case TypeId::kNull:
        return Fail("a value of a type that is always null");
      default:
        return Bytes(static_cast<size_t>(type.byte_width)) != nullptr;
    }
  }

  bool ListNulls(uint64_t* count, const char** nulls) {
    if (!Count(count)) return false;
    if (*count / 8 > left()) return Fail("it is cut off");
    *nulls = Bytes(BitmapBytes(static_cast<size_t>(*count)));
    return *nulls != nullptr;
  }

  bool SkipList(const Type& element) {
    uint64_t count = 0;
    const char* nulls = nullptr;
    if (!ListNulls(&count, &nulls)) return false;
    for (size_t i = 0; i < count; ++i) {
      if (!Bit(nulls, i) && !Skip(element)) return false;
    }
    return true;
  }

  bool Marker(bool* null) {
    const char* const marker = Bytes(1);
    if (marker == nullptr) return false;
    *null = *marker == row_format::kNullMarker;
    return *null || *marker == row_format::kValueMarker || Fail("a null marker is neither 0 nor 1");
  }

  // Little-endian, as rows are: the low bytes stand first, what is new is filled with the sign.
  bool TakeNumber(const Plan& plan) {
    const auto width = static_cast<size_t>(plan.writer.byte_width);
    const char* const bytes = Bytes(width);
    if (bytes == nullptr) return false;
    if (plan.way == Way::kFloat) {
      float narrow = 0;
      std::memcpy(&narrow, bytes, sizeof(narrow));
      const double wide = narrow;
      out_->append(reinterpret_cast<const char*>(&wide), sizeof(wide));
      return true;
    }
    const bool negative = plan.way == Way::kSigned && (static_cast<uint8_t>(bytes[width - 1]) & 0x80) != 0;
    out_->append(bytes, width);
    out_->append(plan.reader_bytes - width, negative ? '\xFF' : '\0');
    return true;
  }

  void PutCount(uint64_t count) {
    char bytes[10];
    out_->append(bytes, static_cast<size_t>(row_format::PutVarint(count, bytes) - bytes));
  }

  bool TakeList(const Plan& plan) {
    uint64_t count = 0;
    const char* nulls = nullptr;
    if (!ListNulls(&count, &nulls)) return false;
    PutCount(count);
    out_->append(nulls, BitmapBytes(static_cast<size_t>(count)));
    for (size_t i = 0; i < count; ++i) {
      if (too_large()) return Fail("it grows too large");
      if (!Bit(nulls, i) && !Take(plan.children[0])) return false;
    }
    return true;
  }

  bool TakeMap(const Plan& plan) {
    uint64_t count = 0;
    if (!Count(&count)) return false;
    PutCount(count);
    for (uint64_t i = 0; i < count; ++i) {
      bool null = false;
      if (too_large()) return Fail("it grows too large");
      if (!Take(plan.children[0]) || !Marker(&null)) return false;
      out_->push_back(null ? row_format::kNullMarker : row_format::kValueMarker);
      if (!null && !Take(plan.children[1])) return false;
    }
    return true;
  }

  bool TakeStruct(const Plan& plan) {
    const std::vector<Type>& sources = plan.writer.children;
    const char* const nulls = Bytes(BitmapBytes(sources.size()));
    if (nulls == nullptr) return false;
    std::vector<const char*> places(sources.size(), nullptr);
    for (size_t i = 0; i < sources.size(); ++i) {
      if (Bit(nulls, i)) continue;
      places[i] = next_;
      if (!Skip(sources[i])) return false;
    }
    const char* const after = next_;
    const size_t bitmap = out_->size();
    out_->append(BitmapBytes(plan.fields.size()), '\0');
    for (size_t i = 0; i < plan.fields.size(); ++i) {
      const Plan::Field& field = plan.fields[i];
      const char* const place = field.source < 0 ? nullptr : places[static_cast<size_t>(field.source)];
      if (place != nullptr) {
        next_ = place;
        if (!Take(*field.plan)) return false;
      } else if (field.source < 0 && field.value.has_value()) {
        out_->append(*field.value);
      } else {
        char& byte = (*out_)[bitmap + (i >> 3)];
        byte = static_cast<char>(byte | (1 << (i & 7)));
      }
    }
    next_ = after;
    return true;
  }

  const char* start_;
  const char* next_;
  const char* end_;
  std::string* out_;
  std::string error_;
};

}  // namespace

RowResolver::RowResolver(std::unique_ptr<const Plan> plan) : plan_(std::move(plan)) {}
RowResolver::RowResolver(RowResolver&&) noexcept = default;
RowResolver::~RowResolver() = default;

Result<RowResolver> RowResolver::Make(const Type& writer, const Type& reader, std::span<const FieldDefault> defaults) {
  HOLDFAST_ASSIGN_OR_RETURN(Plan plan, Planner(defaults).Make(writer, reader));
  return RowResolver(std::make_unique<const Plan>(std::move(plan)));
}

bool RowResolver::is_identity() const { return plan_->way == Way::kCopy; }

Status RowResolver::Resolve(Slice row, std::string* out) const {
  out->clear();
  Walk walk(row, out);
  const bool taken = walk.Take(*plan_);
  if (walk.too_large()) {
    return Status::Incompatible("with the fields that were added since it has more than " +
                                std::to_string(kRowBytesMax) + " bytes, which no value may have");
  }
  if (taken && walk.left() == 0) return Status::Ok();
  return Status::Corrupt("a row of " + plan_->writer.ToString() + ": " +
                         (taken ? std::to_string(walk.left()) + " bytes after its end" : walk.error()));
}

}  // namespace holdfast
