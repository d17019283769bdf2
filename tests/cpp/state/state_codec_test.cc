// Entries to columns and back, beside the live states that wrote them.
#include "holdfast/state_codec.h"

#include <gtest/gtest.h>

#include "codec/store_key.h"
#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

OwnedArray EntriesOf(const Entries& entries) {
  Type type = Primitive(TypeId::kStruct, 0);
  type.children = {Primitive(TypeId::kBinary, 0, "key"), Primitive(TypeId::kBinary, 0, "value")};
  ArrayBuilder builder(type);
  for (const auto& [key, value] : entries) {
    builder.child(0).AppendBytes(key);
    builder.child(1).AppendBytes(value);
    builder.AppendStruct();
  }
  return Value(builder.Finish());
}

std::unique_ptr<StateCodec> Codec(int64_t id, EntryKind kind, std::optional<Type> map_key = {},
                                  std::optional<Type> value = Int64()) {
  return Value(StateCodec::Make(KeyType(), {id, kind, false, 128, std::move(map_key), std::move(value)}));
}

std::unique_ptr<Store> NewStore() {
  std::unique_ptr<Store> store = Value(Store::Make(KeyType(), {.max_parallelism = 128, .end_key_group = 128}));
  ExpectOk(store->Begin(1));
  return store;
}

Entries Taken(Store* store) {
  Entries entries;
  FoldInto(Value(store->TakeDelta()), &entries);
  return entries;
}

// Column `name` of what a codec decoded, as a view's owner keeps it alive.
const ArrowArray& Column(const OwnedArray& decoded, const std::string& name, const ArrowSchema** schema) {
  for (int64_t i = 0; i < decoded.schema().n_children; ++i) {
    if (decoded.schema().children[i]->name != name) continue;
    *schema = decoded.schema().children[i];
    return *decoded.array().children[i];
  }
  ADD_FAILURE() << "no column " << name;
  return decoded.array();
}

std::vector<int64_t> Int64s(const OwnedArray& decoded, const std::string& name, const Type& type = Int64()) {
  const ArrowSchema* schema = nullptr;
  const ArrowArray& array = Column(decoded, name, &schema);
  const ArrayView view = Value(ArrayView::Make(type, *schema, array));
  std::vector<int64_t> found;
  for (int64_t i = 0; i < view.length(); ++i) found.push_back(view.Value<int64_t>(i));
  return found;
}

TEST(StateCodec, DecodesItsOwnAmongOthers) {
  const auto store = NewStore();
  ExpectOk(Value(store->ValueState(1, Int64()))->Put(Keys({7, 8}), Ints({70, 80})));
  ExpectOk(Value(store->ValueState(2, Int64()))->Put(Keys({7}), Ints({71})));
  const OwnedArray entries = EntriesOf(Taken(store.get()));
  const OwnedArray decoded = Value(Codec(2, EntryKind::kValue)->Decode(entries, {}));
  EXPECT_EQ(Int64s(decoded, "value"), std::vector<int64_t>({71}));
  EXPECT_EQ(Value(Codec(3, EntryKind::kValue)->Decode(entries, {})).length(), 0);
}

TEST(StateCodec, ListsBeginWhereTheKeyChanges) {
  const auto store = NewStore();
  ExpectOk(Value(store->ListState(1, Int64()))->Append(Keys({1, 2, 1}), Ints({10, 20, 11})));
  const OwnedArray decoded = Value(Codec(1, EntryKind::kList)->Decode(EntriesOf(Taken(store.get())), {}));
  const ArrowSchema* schema = nullptr;
  const ArrowArray& array = Column(decoded, "begins", &schema);
  const ArrayView begins = Value(ArrayView::Make(Bool(), *schema, array));
  int first_of_key = 0;
  for (int64_t i = 0; i < begins.length(); ++i) first_of_key += begins.Bool(i) ? 1 : 0;
  EXPECT_EQ(first_of_key, 2);
  EXPECT_TRUE(begins.Bool(0));
}

TEST(StateCodec, WhatIsExpiredIsLeftOut) {
  const auto store = NewStore();
  ValueTable* const values = Value(store->ValueState(1, Int64()));
  ExpectOk(values->Put(Keys({1}), Ints({1})));  // no stamp: it goes by `since`
  ExpectOk(store->SetExpiry(1, {.expiry = {}, .stamps = true, .stamp_ms = 500}));
  ExpectOk(values->Put(Keys({2}), Ints({2})));
  const OwnedArray entries = EntriesOf(Taken(store.get()));
  const auto codec = Codec(1, EntryKind::kValue);
  EXPECT_EQ(Value(codec->Decode(entries, {.cutoff_ms = 499, .since_ms = 499})).length(), 1);
  EXPECT_EQ(Value(codec->Decode(entries, {.cutoff_ms = 500, .since_ms = 501})).length(), 1);
  EXPECT_EQ(Value(codec->Decode(entries, {.cutoff_ms = 500, .since_ms = 500})).length(), 0);
}

TEST(StateCodec, EncodesWhatTheLiveStateWrites) {
  const auto store = NewStore();
  ExpectOk(Value(store->MapState(1, String(), Int64()))->Put(Keys({5, 5}), Strings({"a", "b"}), Ints({1, {}})));
  const Entries written = Taken(store.get());
  const OwnedArray keys = Keys({5, 5});
  const OwnedArray map_keys = Strings({"b", "a"});
  const OwnedArray values = Ints({{}, 1});
  Entries encoded;
  FoldInto(Value(Codec(1, EntryKind::kMap, String())->Encode({&keys, nullptr, &map_keys, &values, nullptr})), &encoded);
  EXPECT_EQ(encoded, written);
}

TEST(StateCodec, EncodesTimers) {
  const auto store = NewStore();
  const OwnedArray keys = Keys({5, 6});
  const OwnedArray times = Ints({-1, 1});
  const OwnedArray namespaces = Strings({"", "x"});
  ExpectOk(Value(store->Timers(0x8000))->Register(keys, times, namespaces));
  const Entries written = Taken(store.get());
  const auto codec = Codec(0x8000, EntryKind::kTimers, {}, std::nullopt);
  Entries encoded;
  FoldInto(Value(codec->Encode({&keys, &times, &namespaces, nullptr, nullptr})), &encoded);
  EXPECT_EQ(encoded, written);
  EXPECT_EQ(Value(codec->Decode(EntriesOf(written), {})).length(), 2);
}

TEST(StateCodec, RefusesWhatDoesNotParse) {
  const auto store = NewStore();
  ExpectOk(Value(store->ValueState(1, Int64()))->Put(Keys({7}), Ints({70})));
  const Entries good = Taken(store.get());
  const auto& [key, value] = *good.begin();
  const auto codec = Codec(1, EntryKind::kValue);
  const auto expect = [&](const std::string& bad_key, const std::string& bad_value, Code code, const char* part) {
    ExpectError(codec->Decode(EntriesOf({{bad_key, bad_value}}), {}).status(), code, part);
  };
  expect(key.substr(0, 3), value, Code::kCorrupt, "no state");
  expect(key.substr(0, key.size() - 1), value, Code::kCorrupt, "key group");
  std::string other_group = key;
  other_group[1] = static_cast<char>(other_group[1] ^ 1);
  expect(other_group, value, Code::kCorrupt, "another key group");
  expect(key, "", Code::kCorrupt, "header");
  expect(key, "\x41", Code::kCorrupt, "null");
  expect(key, "\x02" + value.substr(1), Code::kIncompatible, "a later program wrote it");
  expect(key, value + "x", Code::kCorrupt, "state 1");
  const std::string too_short = store_key::Make(0, 1, "\x01");
  ExpectError(Codec(1, EntryKind::kList)->Decode(EntriesOf({{too_short, value}}), {}).status(), Code::kCorrupt,
              "state 1");
  const std::string in_a_group = store_key::Make(0, 0x4000, std::string(8, '\0'));
  ExpectError(Codec(0x4000, EntryKind::kList)->Decode(EntriesOf({{in_a_group, value}}), {}).status(), Code::kCorrupt,
              "of no key");
}

TEST(StateCodec, ReadsAllSchemasAndWritesTheNewest) {
  const Type int32 = Primitive(TypeId::kInt32, 4);
  const auto store = NewStore();
  ExpectOk(Value(store->ValueState(1, int32))->Put(Keys({7}), Fixed<int32_t>(int32, {-70})));
  const Entries earlier = Taken(store.get());
  const auto codec = Value(
      StateCodec::Make(KeyType(), {1, EntryKind::kValue, false, 128, {}, Int64(), ValueSchemas{{int32}, Int64(), {}}}));
  EXPECT_EQ(Int64s(Value(codec->Decode(EntriesOf(earlier), {})), "value"), (std::vector<int64_t>{-70}));
  const OwnedArray keys = Keys({7});
  const OwnedArray values = Ints({-71});
  Entries newest;
  FoldInto(Value(codec->Encode({&keys, nullptr, nullptr, &values, nullptr})), &newest);
  EXPECT_EQ(newest.begin()->second, std::string("\x02\xB9\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 9));
  EXPECT_EQ(Int64s(Value(codec->Decode(EntriesOf(newest), {})), "value"), (std::vector<int64_t>{-71}));
  Entries torn = earlier;
  torn.begin()->second.pop_back();
  ExpectError(codec->Decode(EntriesOf(torn), {}).status(), Code::kCorrupt, "cut off");
}

TEST(StateCodec, RefusesColumnsThatTheStateHasNot) {
  const OwnedArray keys = Keys({1});
  const OwnedArray nulls = Ints({{}});
  const OwnedArray two = Ints({1, 2});
  const auto codec = Codec(1, EntryKind::kValue);
  const auto expect = [&](const StateCodec::Columns& columns, const char* part) {
    ExpectError(codec->Encode(columns).status(), Code::kInvalidRequest, part);
  };
  expect({&keys, nullptr, nullptr, nullptr, nullptr}, "values");
  expect({&keys, &two, nullptr, &two, nullptr}, "times");
  expect({&keys, nullptr, nullptr, &two, nullptr}, "rows");
  expect({&keys, nullptr, nullptr, &nulls, nullptr}, "null");
  ExpectError(
      Codec(0x8000, EntryKind::kTimers, {}, std::nullopt)->Encode({&keys, &nulls, nullptr, nullptr, nullptr}).status(),
      Code::kInvalidRequest, "suffixes");
}

TEST(StateCodec, RefusesStatesThatThereAreNot) {
  const auto expect = [](StateCodecOptions options, const char* part) {
    ExpectError(StateCodec::Make(KeyType(), std::move(options)).status(), Code::kInvalidRequest, part);
  };
  expect({0x10000, EntryKind::kValue, false, 128, {}, Int64()}, "state_id");
  expect({1, EntryKind::kValue, false, 0, {}, Int64()}, "max_parallelism");
  expect({1, EntryKind::kTimers, false, 128, {}, {}}, "kind");
  expect({0x8000, EntryKind::kValue, false, 128, {}, Int64()}, "kind");
  expect({0x4000, EntryKind::kValue, false, 128, {}, Int64()}, "kind");
  expect({1, EntryKind::kMap, false, 128, {}, Int64()}, "map_key");
}

}  // namespace
}  // namespace holdfast::testing
