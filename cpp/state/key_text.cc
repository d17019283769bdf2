#include "state/key_text.h"

#include "codec/array_view.h"

namespace holdfast {

namespace {

constexpr size_t kTextMax = 60;

std::string Hex(Slice bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (const char c : bytes.substr(0, kTextMax / 2)) {
    text += kDigits[static_cast<uint8_t>(c) >> 4];
    text += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return bytes.size() > kTextMax / 2 ? text + "…" : text;
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
    case TypeId::kString: {
      const Slice text = view.Bytes(0);
      return std::string("'").append(text.substr(0, kTextMax)).append(text.size() > kTextMax ? "…'" : "'");
    }
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
