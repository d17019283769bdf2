// Types from Arrow C schemas.
#include <charconv>
#include <string_view>

#include "codec/type_format.h"

namespace holdfast {

namespace {

// Deeper types than this are refused, so that recursion over a type needs no other limit.
constexpr int kMaxDepth = 64;

std::string Place(const std::string& path) { return path.empty() ? "the type" : "field '" + path + "'"; }

Status Unsupported(const std::string& path, std::string_view what) {
  return Status::InvalidRequest("holdfast keeps no " + std::string(what) + ", found at " + Place(path) +
                                "; cast it to a supported type first");
}

bool ParseInt(std::string_view text, int32_t* out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

Status Malformed(const std::string& path, std::string_view format) {
  return Status::InvalidRequest("malformed Arrow format string '" + std::string(format) + "' at " + Place(path));
}

void SetFixed(TypeId id, int32_t byte_width, Type* type) {
  type->id = id;
  type->byte_width = byte_width;
}

bool ImportPrimitive(char format, Type* type) {
  if (format == 'u' || format == 'U' || format == 'z' || format == 'Z') {
    SetFixed(format == 'u' || format == 'U' ? TypeId::kString : TypeId::kBinary, 0, type);
    return true;
  }
  for (const PrimitiveFormat& primitive : kPrimitives) {
    if (primitive.format != format) continue;
    SetFixed(primitive.id, primitive.byte_width, type);
    return true;
  }
  return false;
}

bool ImportUnit(char letter, TimeUnit* unit) {
  constexpr std::string_view kLetters = "smun";
  const size_t index = kLetters.find(letter);
  if (index == std::string_view::npos) return false;
  *unit = static_cast<TimeUnit>(index);
  return true;
}

Status ImportTemporal(std::string_view format, const std::string& path, Type* type) {
  if (format == "tdD" || format == "tdm") {
    SetFixed(format == "tdD" ? TypeId::kDate32 : TypeId::kDate64, format == "tdD" ? 4 : 8, type);
    type->unit = format == "tdD" ? TimeUnit::kSecond : TimeUnit::kMilli;
    return Status::Ok();
  }
  if (format.size() < 3 || !ImportUnit(format[2], &type->unit)) return Malformed(path, format);
  if (format[1] == 's' && format.size() >= 4 && format[3] == ':') {
    SetFixed(TypeId::kTimestamp, 8, type);
    type->timezone = format.substr(4);
    return Status::Ok();
  }
  if (format.size() != 3) return Malformed(path, format);
  if (format[1] == 'D') {
    SetFixed(TypeId::kDuration, 8, type);
    return Status::Ok();
  }
  if (format[1] == 'i') return Unsupported(path, "calendar intervals");
  if (format[1] != 't') return Malformed(path, format);
  const bool narrow = type->unit == TimeUnit::kSecond || type->unit == TimeUnit::kMilli;
  SetFixed(narrow ? TypeId::kTime32 : TypeId::kTime64, narrow ? 4 : 8, type);
  return Status::Ok();
}

Status ImportDecimal(std::string_view format, const std::string& path, Type* type) {
  std::string_view rest = format.substr(2);
  const size_t first = rest.find(',');
  if (first == std::string_view::npos) return Malformed(path, format);
  const size_t second = rest.find(',', first + 1);
  int32_t bits = 128;
  const std::string_view scale =
      second == std::string_view::npos ? rest.substr(first + 1) : rest.substr(first + 1, second - first - 1);
  if (!ParseInt(rest.substr(0, first), &type->precision) || !ParseInt(scale, &type->scale) ||
      (second != std::string_view::npos && !ParseInt(rest.substr(second + 1), &bits))) {
    return Malformed(path, format);
  }
  if (bits != 128) return Unsupported(path, "decimals of " + std::to_string(bits) + " bits (only of 128)");
  SetFixed(TypeId::kDecimal128, 16, type);
  return Status::Ok();
}

Result<Type> ImportField(const ArrowSchema& schema, const std::string& path, int depth);

Status ImportChild(const ArrowSchema& schema, int64_t index, const std::string& path, int depth, Type* parent) {
  if (index >= schema.n_children || schema.children == nullptr || schema.children[index] == nullptr) {
    return Malformed(path, schema.format);
  }
  const ArrowSchema& child = *schema.children[index];
  const std::string name = child.name == nullptr ? "" : child.name;
  HOLDFAST_ASSIGN_OR_RETURN(Type type, ImportField(child, path.empty() ? name : path + "." + name, depth + 1));
  parent->children.push_back(std::move(type));
  return Status::Ok();
}

Status ImportNested(const ArrowSchema& schema, const std::string& path, int depth, Type* type) {
  const std::string_view format = schema.format;
  if (format == "+s") {
    SetFixed(TypeId::kStruct, 0, type);
    for (int64_t i = 0; i < schema.n_children; ++i) {
      HOLDFAST_RETURN_IF_ERROR(ImportChild(schema, i, path, depth, type));
    }
    return Status::Ok();
  }
  if (format == "+l" || format == "+L" || format == "+vl" || format == "+vL" || format.starts_with("+w:")) {
    int32_t size = 0;
    if (format[1] == 'w' && (!ParseInt(format.substr(3), &size) || size < 0)) return Malformed(path, format);
    SetFixed(TypeId::kList, 0, type);
    HOLDFAST_RETURN_IF_ERROR(ImportChild(schema, 0, path, depth, type));
    type->children[0].name = "item";  // Arrow ignores this name, and writers disagree about it
    return Status::Ok();
  }
  if (format == "+m") {
    SetFixed(TypeId::kMap, 0, type);
    const bool has_entries = schema.n_children == 1 && schema.children != nullptr && schema.children[0] != nullptr;
    if (!has_entries || schema.children[0]->format == nullptr) return Malformed(path, format);
    const ArrowSchema& entries = *schema.children[0];
    if (std::string_view(entries.format) != "+s" || entries.n_children != 2) return Malformed(path, format);
    HOLDFAST_RETURN_IF_ERROR(ImportChild(entries, 0, path, depth + 1, type));
    HOLDFAST_RETURN_IF_ERROR(ImportChild(entries, 1, path, depth + 1, type));
    type->children[0].name = "key";
    type->children[0].nullable = false;
    type->children[1].name = "value";
    return Status::Ok();
  }
  if (format.starts_with("+u")) return Unsupported(path, "unions");
  if (format == "+r") return Unsupported(path, "run-end encoded arrays");
  return Unsupported(path, "Arrow type of format '" + std::string(format) + "'");
}

Status ImportFormat(const ArrowSchema& schema, const std::string& path, int depth, Type* type) {
  const std::string_view format = schema.format;
  if (format.size() == 1 && ImportPrimitive(format[0], type)) return Status::Ok();
  if (format == "e") return Unsupported(path, "half floats");
  if (format == "vu" || format == "vz") {
    SetFixed(format == "vu" ? TypeId::kString : TypeId::kBinary, 0, type);
    return Status::Ok();
  }
  if (format.starts_with("w:")) {
    type->id = TypeId::kFixedSizeBinary;
    if (!ParseInt(format.substr(2), &type->byte_width) || type->byte_width < 0) return Malformed(path, format);
    return Status::Ok();
  }
  if (format.starts_with("d:")) return ImportDecimal(format, path, type);
  if (format.starts_with("t")) return ImportTemporal(format, path, type);
  if (format.starts_with("+")) return ImportNested(schema, path, depth, type);
  return Unsupported(path, "Arrow type of format '" + std::string(format) + "'");
}

Result<Type> ImportField(const ArrowSchema& schema, const std::string& path, int depth) {
  if (schema.release == nullptr || schema.format == nullptr) {
    return Status::InvalidRequest("the Arrow schema of " + Place(path) + " was released already; export it again");
  }
  if (depth > kMaxDepth) {
    return Status::InvalidRequest("types nest at most " + std::to_string(kMaxDepth) + " deep; " + Place(path) +
                                  " nests deeper");
  }
  Type type;
  const ArrowSchema& values = schema.dictionary == nullptr ? schema : *schema.dictionary;
  if (schema.dictionary != nullptr) {
    const std::string_view index = schema.format;
    if (values.format == nullptr || index.size() != 1 || std::string_view(kIndexFormats).find(index) == index.npos) {
      return Malformed(path, index);
    }
    if (values.dictionary != nullptr) return Unsupported(path, "dictionaries of dictionaries");
  }
  HOLDFAST_RETURN_IF_ERROR(ImportFormat(values, path, depth, &type));
  type.name = schema.name == nullptr ? "" : schema.name;
  type.nullable = (schema.flags & ARROW_FLAG_NULLABLE) != 0;
  return type;
}

}  // namespace

Result<Type> ImportType(const ArrowSchema& schema) {
  HOLDFAST_ASSIGN_OR_RETURN(Type type, ImportField(schema, "", 0));
  type.name.clear();
  type.nullable = true;
  return type;
}

}  // namespace holdfast
