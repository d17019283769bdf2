// Keys as error messages show them.
#pragma once

#include <string>

#include "holdfast/key_codec.h"

namespace holdfast {

// "42", "'alice'", "(42, 'alice')"; hexadecimal when the bytes do not parse. Long strings are cut.
std::string KeyText(const KeyCodec& codec, Slice encoded);

}  // namespace holdfast
