// Types to Arrow C schemas and to text, and the comparison of declared with found types.
#include <array>
#include <memory>

#include "codec/type_format.h"
#include "codec/type_match.h"

namespace holdfast {

namespace {

// Everything one exported schema points to; freed by ReleaseSchema.
struct SchemaStorage {
  std::string format;
  std::string name;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> child_pointers;
};

void ReleaseSchema(ArrowSchema* schema) {
  auto* storage = static_cast<SchemaStorage*>(schema->private_data);
  for (ArrowSchema& child : storage->children) {
    if (child.release != nullptr) child.release(&child);
  }
  delete storage;
  schema->release = nullptr;
}

constexpr std::array<const char*, 4> kUnitNames = {"s", "ms", "us", "ns"};

char UnitLetter(TimeUnit unit) { return "smun"[static_cast<int>(unit)]; }
std::string UnitName(TimeUnit unit) { return kUnitNames[static_cast<size_t>(unit)]; }

std::string Format(const Type& type) {
  switch (type.id) {
    case TypeId::kDecimal128:
      return "d:" + std::to_string(type.precision) + "," + std::to_string(type.scale);
    case TypeId::kDate32:
      return "tdD";
    case TypeId::kDate64:
      return "tdm";
    case TypeId::kTime32:
    case TypeId::kTime64:
      return std::string("tt") + UnitLetter(type.unit);
    case TypeId::kTimestamp:
      return std::string("ts") + UnitLetter(type.unit) + ":" + type.timezone;
    case TypeId::kDuration:
      return std::string("tD") + UnitLetter(type.unit);
    case TypeId::kString:
      return "u";
    case TypeId::kBinary:
      return "z";
    case TypeId::kFixedSizeBinary:
      return "w:" + std::to_string(type.byte_width);
    case TypeId::kList:
      return "+l";
    case TypeId::kMap:
      return "+m";
    case TypeId::kStruct:
      return "+s";
    default:
      return {kPrimitives[static_cast<size_t>(type.id)].format};
  }
}

void ExportField(const Type& type, ArrowSchema* out);

// Gives `out` its storage with room for `children`; the caller fills the children.
SchemaStorage* StartField(std::string format, const std::string& name, bool nullable, size_t children,
                          ArrowSchema* out) {
  auto storage = std::make_unique<SchemaStorage>();
  storage->format = std::move(format);
  storage->name = name;
  storage->children.resize(children);
  for (ArrowSchema& child : storage->children) storage->child_pointers.push_back(&child);
  *out = {};
  out->format = storage->format.c_str();
  out->name = storage->name.c_str();
  out->flags = nullable ? ARROW_FLAG_NULLABLE : 0;
  out->n_children = static_cast<int64_t>(children);
  out->children = children == 0 ? nullptr : storage->child_pointers.data();
  out->release = ReleaseSchema;
  out->private_data = storage.get();
  return storage.release();
}

void ExportField(const Type& type, ArrowSchema* out) {
  const bool is_map = type.id == TypeId::kMap;
  SchemaStorage* storage = StartField(Format(type), type.name, type.nullable, is_map ? 1 : type.children.size(), out);
  if (is_map) {
    SchemaStorage* entries = StartField("+s", "entries", false, 2, &storage->children[0]);
    for (size_t i = 0; i < 2; ++i) ExportField(type.children[i], &entries->children[i]);
    return;
  }
  for (size_t i = 0; i < type.children.size(); ++i) ExportField(type.children[i], &storage->children[i]);
}

std::string FieldToString(const Type& field) {
  return field.name + ": " + field.ToString() + (field.nullable ? "" : " not null");
}

std::string NestedToString(const Type& type) {
  if (type.id == TypeId::kMap) return "map<" + type.children[0].ToString() + ", " + type.children[1].ToString() + ">";
  std::string text = type.id == TypeId::kList ? "list<" : "struct<";
  for (size_t i = 0; i < type.children.size(); ++i) {
    text += (i == 0 ? "" : ", ") + FieldToString(type.children[i]);
  }
  return text + ">";
}

}  // namespace

Type Type::Field(TypeId id, std::string name, int32_t byte_width, bool nullable) {
  Type type;
  type.id = id;
  type.name = std::move(name);
  type.nullable = nullable;
  type.byte_width = byte_width;
  return type;
}

std::string Type::ToString() const {
  switch (id) {
    case TypeId::kDecimal128:
      return "decimal128(" + std::to_string(precision) + ", " + std::to_string(scale) + ")";
    case TypeId::kDate32:
      return "date32[day]";
    case TypeId::kDate64:
      return "date64[ms]";
    case TypeId::kTime32:
      return "time32[" + UnitName(unit) + "]";
    case TypeId::kTime64:
      return "time64[" + UnitName(unit) + "]";
    case TypeId::kTimestamp:
      return "timestamp[" + UnitName(unit) + (timezone.empty() ? "" : ", tz=" + timezone) + "]";
    case TypeId::kDuration:
      return "duration[" + UnitName(unit) + "]";
    case TypeId::kString:
      return "string";
    case TypeId::kBinary:
      return "binary";
    case TypeId::kFixedSizeBinary:
      return "fixed_size_binary[" + std::to_string(byte_width) + "]";
    case TypeId::kList:
    case TypeId::kMap:
    case TypeId::kStruct:
      return NestedToString(*this);
    default:
      return kPrimitives[static_cast<size_t>(id)].name;
  }
}

Status ExportType(const Type& type, ArrowSchema* out) {
  ExportField(type, out);
  return Status::Ok();
}

bool SameType(const Type& declared, const Type& found) {
  if (declared.id != found.id || declared.byte_width != found.byte_width || declared.precision != found.precision ||
      declared.scale != found.scale || declared.unit != found.unit ||
      declared.timezone.empty() != found.timezone.empty() || declared.children.size() != found.children.size()) {
    return false;
  }
  for (size_t i = 0; i < declared.children.size(); ++i) {
    if (declared.id == TypeId::kStruct && declared.children[i].name != found.children[i].name) return false;
    if (!SameType(declared.children[i], found.children[i])) return false;
  }
  return true;
}

}  // namespace holdfast
