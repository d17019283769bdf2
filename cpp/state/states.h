// The makers of the states' tables. Each works on one overlay table of its Store, which outlives it.
#pragma once

#include <memory>
#include <string>

#include "state/slot_store.h"

namespace holdfast {

Result<std::unique_ptr<ValueTable>> MakeValueState(SlotStore* store, Table* table, const Type& value);
Result<std::unique_ptr<ListTable>> MakeListState(SlotStore* store, Table* table, const Type& element);
Result<std::unique_ptr<MapTable>> MakeMapState(SlotStore* store, Table* table, const Type& map_key,
                                               const Type& map_value);
// sum, product, min, max, first, last, bool_and, bool_or. InvalidRequest for a type that a function does not take.
Result<std::unique_ptr<ReducingTable>> MakeReducingState(SlotStore* store, Table* table, const Type& value,
                                                         const std::string& function);
// count, avg, variance, stddev.
Result<std::unique_ptr<AggregatingTable>> MakeAggregatingState(SlotStore* store, Table* table, const Type& value,
                                                               const std::string& function);

// Namespaces are text, times whatever the caller counts in.
Result<std::unique_ptr<TimerTable>> MakeTimers(SlotStore* store, Table* table);

}  // namespace holdfast
