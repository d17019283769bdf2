#include "holdfast/key_codec.h"

#include "codec/array_builder.h"
#include "codec/key_encoder.h"
#include "codec/key_format.h"

namespace holdfast {

namespace {

Status CheckKeyType(const Type& type, const std::string& path) {
  const std::string place = path.empty() ? "the key" : "key column '" + path + "'";
  const bool zero_width = type.id == TypeId::kFixedSizeBinary && type.byte_width == 0;
  if (type.id == TypeId::kNull || type.id == TypeId::kList || type.id == TypeId::kMap || zero_width) {
    return Status::InvalidRequest(place + " is of " + type.ToString() +
                                  ", which has no order as a key; use integers, floats, decimals, booleans, strings, " +
                                  "binaries, dates, times, or structs of these");
  }
  if (type.id != TypeId::kStruct) return Status::Ok();
  if (type.children.empty()) return Status::InvalidRequest(place + " is a struct without columns; name at least one");
  for (const Type& child : type.children) {
    HOLDFAST_RETURN_IF_ERROR(CheckKeyType(child, path.empty() ? child.name : path + "." + child.name));
  }
  return Status::Ok();
}

// Reads one encoded key from front to back. `out` null: only checks and skips.
class KeyParser {
 public:
  KeyParser(Slice key, bool allow_null)
      : start_(key.data()), next_(key.data()), end_(key.data() + key.size()), allow_null_(allow_null) {}

  size_t consumed() const { return static_cast<size_t>(next_ - start_); }
  size_t left() const { return static_cast<size_t>(end_ - next_); }
  const std::string& error() const { return error_; }

  bool ParseKey(const Type& type, ArrayBuilder* out) {
    if (type.id != TypeId::kStruct) return ParseColumn(type, out);
    return ParseFields(type, out);
  }

 private:
  bool Fail(const Type& type, const std::string& what) {
    error_ = "at byte " + std::to_string(consumed()) + ", reading " +
             (type.name.empty() ? "" : "column '" + type.name + "' of ") + type.ToString() + ": " + what;
    return false;
  }

  bool ParseFields(const Type& type, ArrayBuilder* out) {
    for (size_t i = 0; i < type.children.size(); ++i) {
      if (!ParseColumn(type.children[i], out == nullptr ? nullptr : &out->child(i))) return false;
    }
    if (out != nullptr) out->AppendStruct();
    return true;
  }

  bool ParseColumn(const Type& type, ArrayBuilder* out) {
    if (allow_null_) {
      if (next_ == end_) return Fail(type, "expected a null marker, found the end");
      const char marker = *next_++;
      if (marker == key_format::kNullMarker) {
        if (out != nullptr) out->AppendNull();
        return true;
      }
      if (marker != key_format::kValueMarker) return Fail(type, "the null marker is neither 0 nor 1");
    }
    if (type.id == TypeId::kStruct) return ParseFields(type, out);
    if (type.id == TypeId::kString || type.id == TypeId::kBinary) return ParseBytes(type, out);
    return ParseFixed(type, out);
  }

  bool ParseFixed(const Type& type, ArrayBuilder* out) {
    const auto width = static_cast<size_t>(type.byte_width);
    if (left() < width) {
      return Fail(type, "expected " + std::to_string(width) + " bytes, " + std::to_string(left()) + " are left");
    }
    const char* key = next_;
    next_ += width;
    if (type.id == TypeId::kFixedSizeBinary) {
      if (out != nullptr) out->AppendFixed(key);
      return true;
    }
    if (type.id == TypeId::kBool) {
      if (key[0] != 0 && key[0] != 1) return Fail(type, "a boolean is neither 0 nor 1");
      if (out != nullptr) out->AppendFixed(key);
      return true;
    }
    char value[16];
    bool canonical = false;
    key_format::VisitFixed(type, [&](auto format) { canonical = format.Get(key, value); });
    if (!canonical) return Fail(type, "a float that no encoder writes");
    if (out != nullptr) out->AppendFixed(value);
    return true;
  }

  bool ParseBytes(const Type& type, ArrayBuilder* out) {
    unescaped_.clear();
    for (;;) {
      const auto* zero =
          static_cast<const char*>(left() == 0 ? nullptr : std::memchr(next_, key_format::kEscape, left()));
      if (zero == nullptr || zero + 1 == end_) return Fail(type, "expected a terminator, found the end");
      const Slice piece(next_, static_cast<size_t>(zero - next_));
      next_ = zero + 2;
      if (zero[1] == key_format::kTerminator) {
        if (out == nullptr) return true;
        if (!unescaped_.empty()) unescaped_.append(piece);
        out->AppendBytes(unescaped_.empty() ? piece : Slice{unescaped_});
        return true;
      }
      if (zero[1] != key_format::kEscapedZero) return Fail(type, "a zero byte is neither escaped nor a terminator");
      if (out != nullptr) unescaped_.append(piece).push_back('\0');
    }
  }

  const char* start_;
  const char* next_;
  const char* end_;
  bool allow_null_;
  std::string unescaped_;
  std::string error_;
};

}  // namespace

Result<KeyCodec> KeyCodec::Make(Type type, bool allow_null) {
  HOLDFAST_RETURN_IF_ERROR(CheckKeyType(type, ""));
  return KeyCodec(std::move(type), allow_null);
}

Status KeyCodec::Encode(const ArrowSchema& schema, const ArrowArray& keys, ByteColumn* out) const {
  HOLDFAST_ASSIGN_OR_RETURN(const KeyEncoder encoder, KeyEncoder::Make(type_, allow_null_, schema, keys));
  encoder.Append(0, encoder.length(), out);
  return Status::Ok();
}

Result<OwnedArray> KeyCodec::Decode(std::span<const Slice> encoded) const {
  ArrayBuilder builder(type_);
  builder.Reserve(static_cast<int64_t>(encoded.size()));
  builder.ReserveBytes(TotalBytes(encoded));
  for (size_t i = 0; i < encoded.size(); ++i) {
    KeyParser parser(encoded[i], allow_null_);
    if (!parser.ParseKey(type_, &builder)) return Status::Corrupt("key " + std::to_string(i) + " " + parser.error());
    if (parser.left() > 0) {
      return Status::Corrupt("key " + std::to_string(i) + " of " + type_.ToString() + " has " +
                             std::to_string(parser.left()) + " bytes after its end");
    }
  }
  return builder.Finish();
}

Result<size_t> KeyCodec::EncodedLength(Slice bytes) const {
  KeyParser parser(bytes, allow_null_);
  if (!parser.ParseKey(type_, nullptr)) return Status::Corrupt("a key " + parser.error());
  return parser.consumed();
}

}  // namespace holdfast
