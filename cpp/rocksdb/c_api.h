// The part of RocksDB's C API that Holdfast calls, declared here on our own and resolved at run time: no RocksDB header
// is needed to build, no RocksDB library to link. Present in every rocksdbjni from 9.8 on (the one in pyspark 4.0).
// Ownership is RocksDB's: what `x_create` or `open` gives goes back through `x_destroy` or `close`; error strings and
// other char* results go back through `free`. A bool is `unsigned char`, but for multi-get's last argument.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/status.h"

namespace holdfast::rocks {

struct CDatabase;
struct CColumnFamily;
struct CCompactionFilter;
struct COptions;
struct CReadOptions;
struct CEnvOptions;
struct CIngestOptions;
struct CWaitForCompactOptions;
struct CIterator;
struct CPinnableSlice;
struct CSstFileWriter;
struct CLiveFiles;

// F(result type, name without the prefix "rocksdb_", arguments)
#define HOLDFAST_ROCKSDB_FUNCTIONS(F)                                                                                \
  F(void, free, (void*))                                                                                             \
  F(COptions*, options_create, ())                                                                                   \
  F(void, options_destroy, (COptions*))                                                                              \
  F(void, get_options_from_string, (const COptions* base, const char* text, COptions* out, char** error))            \
  F(CDatabase*, open_column_families,                                                                                \
    (const COptions*, const char* directory, int count, const char* const* names, const COptions* const* options,    \
     CColumnFamily** handles, char** error))                                                                         \
  F(CDatabase*, open_for_read_only_column_families,                                                                  \
    (const COptions*, const char* directory, int count, const char* const* names, const COptions* const* options,    \
     CColumnFamily** handles, unsigned char error_if_wal_file_exists, char** error))                                 \
  F(void, column_family_handle_destroy, (CColumnFamily*))                                                            \
  F(void, close, (CDatabase*))                                                                                       \
  F(CReadOptions*, readoptions_create, ())                                                                           \
  F(void, readoptions_destroy, (CReadOptions*))                                                                      \
  F(void, readoptions_set_verify_checksums, (CReadOptions*, unsigned char))                                          \
  F(void, readoptions_set_iterate_upper_bound, (CReadOptions*, const char* borrowed_key, size_t))                    \
  F(void, batched_multi_get_cf,                                                                                      \
    (CDatabase*, const CReadOptions*, CColumnFamily*, size_t count, const char* const* keys, const size_t* sizes,    \
     CPinnableSlice** values, char** errors, bool sorted_input))                                                     \
  F(const char*, pinnableslice_value, (const CPinnableSlice*, size_t* size))                                         \
  F(void, pinnableslice_destroy, (CPinnableSlice*))                                                                  \
  F(CIterator*, create_iterator_cf, (CDatabase*, const CReadOptions*, CColumnFamily*))                               \
  F(void, iter_destroy, (CIterator*))                                                                                \
  F(void, iter_seek, (CIterator*, const char* key, size_t))                                                          \
  F(void, iter_next, (CIterator*))                                                                                   \
  F(unsigned char, iter_valid, (const CIterator*))                                                                   \
  F(const char*, iter_key, (const CIterator*, size_t* size))                                                         \
  F(const char*, iter_value, (const CIterator*, size_t* size))                                                       \
  F(void, iter_get_error, (const CIterator*, char** error))                                                          \
  F(int, property_int_cf, (CDatabase*, CColumnFamily*, const char* name, uint64_t* out))                             \
  F(void, approximate_sizes_cf,                                                                                      \
    (CDatabase*, CColumnFamily*, int count, const char* const* starts, const size_t* start_sizes,                    \
     const char* const* limits, const size_t* limit_sizes, uint64_t* sizes, char** error))                           \
  F(CEnvOptions*, envoptions_create, ())                                                                             \
  F(void, envoptions_destroy, (CEnvOptions*))                                                                        \
  F(CSstFileWriter*, sstfilewriter_create, (const CEnvOptions*, const COptions*))                                    \
  F(void, sstfilewriter_destroy, (CSstFileWriter*))                                                                  \
  F(void, sstfilewriter_open, (CSstFileWriter*, const char* path, char** error))                                     \
  F(void, sstfilewriter_put, (CSstFileWriter*, const char* key, size_t, const char* value, size_t, char** error))    \
  F(void, sstfilewriter_delete, (CSstFileWriter*, const char* key, size_t, char** error))                            \
  F(void, sstfilewriter_finish, (CSstFileWriter*, char** error))                                                     \
  F(CIngestOptions*, ingestexternalfileoptions_create, ())                                                           \
  F(void, ingestexternalfileoptions_destroy, (CIngestOptions*))                                                      \
  F(void, ingestexternalfileoptions_set_move_files, (CIngestOptions*, unsigned char))                                \
  F(void, ingest_external_file_cf,                                                                                   \
    (CDatabase*, CColumnFamily*, const char* const* paths, size_t count, const CIngestOptions*, char** error))       \
  F(CCompactionFilter*, compactionfilter_create,                                                                     \
    (void* state, void (*destructor)(void*),                                                                         \
     unsigned char (*filter)(void*, int level, const char* key, size_t, const char* value, size_t, char** new_value, \
                             size_t* new_value_size, unsigned char* value_changed),                                  \
     const char* (*name)(void*)))                                                                                    \
  F(void, compactionfilter_destroy, (CCompactionFilter*))                                                            \
  F(void, options_set_compaction_filter, (COptions*, CCompactionFilter * borrowed))                                  \
  F(void, compact_range_cf, (CDatabase*, CColumnFamily*, const char* begin, size_t, const char* end, size_t))        \
  F(CWaitForCompactOptions*, wait_for_compact_options_create, ())                                                    \
  F(void, wait_for_compact_options_destroy, (CWaitForCompactOptions*))                                               \
  F(void, wait_for_compact, (CDatabase*, CWaitForCompactOptions*, char** error))                                     \
  F(const CLiveFiles*, livefiles, (CDatabase*))                                                                      \
  F(int, livefiles_count, (const CLiveFiles*))                                                                       \
  F(const char*, livefiles_name, (const CLiveFiles*, int index))                                                     \
  F(void, livefiles_destroy, (const CLiveFiles*))

struct CApi {
// Nor a type or a list of parameters. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define HOLDFAST_DECLARE_FUNCTION(result, name, arguments) result(*name) arguments;
  HOLDFAST_ROCKSDB_FUNCTIONS(HOLDFAST_DECLARE_FUNCTION)
#undef HOLDFAST_DECLARE_FUNCTION
};

// The functions of the library that LoadRocksDb loaded; InvalidRequest before that.
Result<const CApi*> LoadedApi();

}  // namespace holdfast::rocks
