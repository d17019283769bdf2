// Rows of all schemas of a state, as the newest has them: for the engine's tables, and for readers without an engine.
#pragma once

#include <memory>

#include "holdfast/value_schemas.h"
#include "overlay/earlier_rows.h"

namespace holdfast {

// InvalidRequest where rows of an earlier schema cannot be rows of the newest, or there are more schemas than a value's
// header can tell apart.
Result<std::unique_ptr<EarlierRows>> MakeResolvedRows(const ValueSchemas& schemas);

}  // namespace holdfast
