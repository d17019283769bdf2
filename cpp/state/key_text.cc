#include "state/key_text.h"

#include "codec/array_view.h"

namespace holdfast {

namespace {

constexpr size_t kTextMax = 60;

void AppendHex(char c, std::string* text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  *text += kDigits[static_cast<uint8_t>(c) >> 4];
  *text += kDigits[static_cast<uint8_t>(c) & 15];
}

std::string Hex(Slice bytes) {
  std::string text = "0x";
  for (const char c : bytes.substr(0, kTextMax / 2)) AppendHex(c, &text);
  return bytes.size() > kTextMax / 2 ? text + "…" : text;
}

// How many bytes the UTF-8 character has that the text begins with; 0 when there is none (Unicode, table 3-7).
size_t CharacterBytes(Slice text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < least || byte(1) > most) return 0;
  const size_t count = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 2; i < count; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return count;
}

// Cut between characters, control characters escaped; hexadecimal when it is no UTF-8, which no store asks of strings.
std::string Quoted(Slice bytes) {
  std::string text = "'";
  for (size_t i = 0; i < bytes.size();) {
    const size_t count = CharacterBytes(bytes.substr(i));
    if (count == 0) return Hex(bytes);
    if (i + count > kTextMax) return text.append("…'");
    if (count == 1 && (static_cast<uint8_t>(bytes[i]) < 0x20 || bytes[i] == 0x7F)) {
      AppendHex(bytes[i], &text.append("\\x"));
    } else {
      text.append(bytes.substr(i, count));
    }
    i += count;
  }
  return text.append("'");
}

std::string ValueText(const ArrayView& view) {
  if (view.IsNull(0)) return "null";
  switch (view.type().id) {
    case TypeId::kBool:
      return view.Bool(0) ? "true" : "false";
    case TypeId::kInt8:
      return std::to_string(view.Value<int8_t>(0));
    case TypeId::kInt16:
      return std::to_string(view.Value<int16_t>(0));
    case TypeId::kInt32:
    case TypeId::kDate32:
    case TypeId::kTime32:
      return std::to_string(view.Value<int32_t>(0));
    case TypeId::kInt64:
    case TypeId::kDate64:
    case TypeId::kTime64:
    case TypeId::kTimestamp:
    case TypeId::kDuration:
      return std::to_string(view.Value<int64_t>(0));
    case TypeId::kUInt8:
      return std::to_string(view.Value<uint8_t>(0));
    case TypeId::kUInt16:
      return std::to_string(view.Value<uint16_t>(0));
    case TypeId::kUInt32:
      return std::to_string(view.Value<uint32_t>(0));
    case TypeId::kUInt64:
      return std::to_string(view.Value<uint64_t>(0));
    case TypeId::kFloat:
      return std::to_string(view.Value<float>(0));
    case TypeId::kDouble:
      return std::to_string(view.Value<double>(0));
    case TypeId::kString:
      return Quoted(view.Bytes(0));
    case TypeId::kBinary:
      return Hex(view.Bytes(0));
    case TypeId::kStruct: {
      std::string text = "(";
      for (size_t i = 0; i < view.children(); ++i) {
        if (i > 0) text.append(", ");
        text.append(ValueText(view.child(i)));
      }
      return text.append(")");
    }
    default:
      return Hex({view.fixed(), static_cast<size_t>(view.type().byte_width)});
  }
}

}  // namespace

std::string KeyText(const KeyCodec& codec, Slice encoded) {
  const Result<OwnedArray> key = codec.Decode({&encoded, 1});
  if (!key.ok()) return Hex(encoded);
  const Result<ArrayView> view = ArrayView::Make(codec.type(), key.value().schema(), key.value().array());
  if (!view.ok()) return Hex(encoded);
  const bool one_column = view.value().type().id == TypeId::kStruct && view.value().children() == 1;
  return ValueText(one_column ? view.value().child(0) : view.value());
}

}  // namespace holdfast
