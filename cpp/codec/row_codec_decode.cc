// Arrays from rows. Every length is checked against the bytes that are left before it is used: a torn or flipped row
// is Corrupt, never a read past its end, and no count can ask for more elements than eight for each byte of the row.
#include "codec/array_builder.h"
#include "codec/row_format.h"
#include "holdfast/row_codec.h"

namespace holdfast {

namespace {

using row_format::BitmapBytes;

Status CheckRowType(const Type& type) {
  for (const Type& child : type.children) HOLDFAST_RETURN_IF_ERROR(CheckRowType(child));
  const bool needs_key = type.id == TypeId::kMap;
  if (needs_key && type.children[0].id == TypeId::kNull) {
    return Status::InvalidRequest("the keys of " + type.ToString() + " can only be null; give them another type");
  }
  return Status::Ok();
}

bool Bit(const char* bitmap, size_t i) { return ((static_cast<uint8_t>(bitmap[i >> 3]) >> (i & 7)) & 1) != 0; }

class RowReader {
 public:
  explicit RowReader(Slice row) : start_(row.data()), next_(row.data()), end_(row.data() + row.size()) {}

  size_t left() const { return static_cast<size_t>(end_ - next_); }
  const std::string& error() const { return error_; }

  // Reads one value that is not null and appends it.
  bool Read(const Type& type, ArrayBuilder* out) {
    switch (type.id) {
      case TypeId::kNull:
        return Fail(type, "a value of this type is always null");
      case TypeId::kBool:
        if (left() > 0 && *next_ != 0 && *next_ != 1) return Fail(type, "a boolean is neither 0 nor 1");
        return ReadFixed(type, out);
      case TypeId::kString:
      case TypeId::kBinary:
        return ReadBytes(type, out);
      case TypeId::kList:
        return ReadList(type, out);
      case TypeId::kMap:
        return ReadMap(type, out);
      case TypeId::kStruct:
        return ReadStruct(type, out);
      default:
        return ReadFixed(type, out);
    }
  }

 private:
  bool Fail(const Type& type, const std::string& what) {
    error_ = "at byte " + std::to_string(next_ - start_) + ", reading " +
             (type.name.empty() ? "" : "field '" + type.name + "' of ") + type.ToString() + ": " + what;
    return false;
  }
  bool FailShort(const Type& type, size_t expected) {
    return Fail(type, "expected " + std::to_string(expected) + " bytes, " + std::to_string(left()) + " are left");
  }

  bool ReadFixed(const Type& type, ArrayBuilder* out) {
    const auto width = static_cast<size_t>(type.byte_width);
    if (left() < width) return FailShort(type, width);
    out->AppendFixed(next_);
    next_ += width;
    return true;
  }

  bool ReadVarint(const Type& type, const char* what, uint64_t* value) {
    const char* after = row_format::GetVarint(next_, end_, value);
    if (after == nullptr) return Fail(type, std::string(what) + " is not a varint in its shortest form");
    next_ = after;
    return true;
  }

  bool ReadBytes(const Type& type, ArrayBuilder* out) {
    uint64_t size = 0;
    if (!ReadVarint(type, "the length", &size)) return false;
    if (left() < size) return FailShort(type, size);
    out->AppendBytes({next_, static_cast<size_t>(size)});
    next_ += size;
    return true;
  }

  // A null bitmap of `count` bits; the bits past it are zero.
  bool ReadBitmap(const Type& type, size_t count, const char** bitmap) {
    const size_t bytes = BitmapBytes(count);
    if (left() < bytes) return FailShort(type, bytes);
    *bitmap = next_;
    if ((count & 7) != 0 && (static_cast<uint8_t>(next_[bytes - 1]) >> (count & 7)) != 0) {
      return Fail(type, "bits are set past the end of the null bitmap");
    }
    next_ += bytes;
    return true;
  }

  bool ReadNull(const Type& type, ArrayBuilder* out) {
    if (!type.nullable) return Fail(type, "found null where none is allowed");
    out->AppendNull();
    return true;
  }

  bool ReadStruct(const Type& type, ArrayBuilder* out) {
    const char* nulls = nullptr;
    if (!ReadBitmap(type, type.children.size(), &nulls)) return false;
    for (size_t i = 0; i < type.children.size(); ++i) {
      const Type& field = type.children[i];
      if (!(Bit(nulls, i) ? ReadNull(field, &out->child(i)) : Read(field, &out->child(i)))) return false;
    }
    out->AppendStruct();
    return true;
  }

  bool ReadList(const Type& type, ArrayBuilder* out) {
    uint64_t count = 0;
    if (!ReadVarint(type, "the element count", &count)) return false;
    if (count / 8 > left()) return FailShort(type, static_cast<size_t>(count / 8));
    const char* nulls = nullptr;
    if (!ReadBitmap(type, static_cast<size_t>(count), &nulls)) return false;
    const Type& element = type.children[0];
    ArrayBuilder& elements = out->child(0);
    for (size_t i = 0; i < count; ++i) {
      if (!(Bit(nulls, i) ? ReadNull(element, &elements) : Read(element, &elements))) return false;
    }
    out->AppendList();
    return true;
  }

  bool ReadMap(const Type& type, ArrayBuilder* out) {
    uint64_t count = 0;
    if (!ReadVarint(type, "the entry count", &count)) return false;
    if (count > left()) return FailShort(type, static_cast<size_t>(count));
    for (uint64_t i = 0; i < count; ++i) {
      if (!Read(type.children[0], &out->child(0))) return false;
      if (left() == 0) return FailShort(type.children[1], 1);
      const char marker = *next_++;
      if (marker != row_format::kNullMarker && marker != row_format::kValueMarker) {
        return Fail(type.children[1], "the null marker is neither 0 nor 1");
      }
      const bool null = marker == row_format::kNullMarker;
      if (!(null ? ReadNull(type.children[1], &out->child(1)) : Read(type.children[1], &out->child(1)))) return false;
    }
    out->AppendList();
    return true;
  }

  const char* start_;
  const char* next_;
  const char* end_;
  std::string error_;
};

Status WrongWidth(size_t row, const Type& type, size_t found) {
  return Status::Corrupt("row " + std::to_string(row) + ": expected " + std::to_string(type.byte_width) + " bytes of " +
                         type.ToString() + ", found " + std::to_string(found));
}

// Rows of a fixed-width type but bool, of which every byte pattern is a value.
Status DecodeFixed(const Type& type, std::span<const Slice> rows, ArrayBuilder* out) {
  const auto width = static_cast<size_t>(type.byte_width);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].data() == nullptr) {
      out->AppendNull();
    } else if (rows[i].size() != width) {
      return WrongWidth(i, type, rows[i].size());
    } else {
      out->AppendFixed(rows[i].data());
    }
  }
  return Status::Ok();
}

}  // namespace

Result<RowCodec> RowCodec::Make(Type type) {
  HOLDFAST_RETURN_IF_ERROR(CheckRowType(type));
  return RowCodec(std::move(type));
}

Result<OwnedArray> RowCodec::Decode(std::span<const Slice> rows) const {
  ArrayBuilder builder(type_);
  builder.Reserve(static_cast<int64_t>(rows.size()));
  builder.ReserveBytes(TotalBytes(rows));
  if (fixed_width() > 0 && type_.id != TypeId::kBool) {
    HOLDFAST_RETURN_IF_ERROR(DecodeFixed(type_, rows, &builder));
    return builder.Finish();
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].data() == nullptr) {
      builder.AppendNull();
      continue;
    }
    RowReader reader(rows[i]);
    if (!reader.Read(type_, &builder)) return Status::Corrupt("row " + std::to_string(i) + " " + reader.error());
    if (reader.left() > 0) {
      return Status::Corrupt("row " + std::to_string(i) + " of " + type_.ToString() + " has " +
                             std::to_string(reader.left()) + " bytes after its end");
    }
  }
  return builder.Finish();
}

}  // namespace holdfast
