"""The native core. Thin bindings, no logic: see cpp/include/holdfast. Arrow crosses by the C data interface (PyCapsules)."""

from collections.abc import Sequence
from typing import Protocol, final

class SchemaExportable(Protocol):
    """Has ``__arrow_c_schema__``: pyarrow.DataType, Field, Schema."""
    def __arrow_c_schema__(self) -> object: ...

class ArrayExportable(Protocol):
    """Has ``__arrow_c_array__``: pyarrow.Array, RecordBatch (a struct array)."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class ArrowArray:
    """An array made by the core; ``pyarrow.array(x)`` or ``pyarrow.record_batch(x)`` imports it without a copy. Import it once."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

# --- codec/ ---------------------------------------------------------------------------------------------------
def xxh64(data: bytes | bytearray | memoryview, seed: int = 0) -> int: ...
def xxh64_file(path: str) -> tuple[int, int]:
    """(XXH64 with seed 0, size in bytes) of a file, read in blocks, without the GIL."""

def slot_of(key_group: int, max_parallelism: int, slots: int) -> int: ...
def first_key_group(slot: int, max_parallelism: int, slots: int) -> int: ...

@final
class KeyCodec:
    """Encodes keys. ``schema``: a struct (or pyarrow.Schema) of the key columns. ``keys`` arguments: a struct array or record batch
    with exactly these columns in this order, or, for one key column, that column's array alone."""
    def __init__(self, schema: SchemaExportable, *, null_keys: bool = False) -> None: ...
    def encode(self, keys: ArrayExportable) -> ArrowArray: ...  # binary
    def decode(self, encoded: ArrayExportable) -> ArrowArray: ...  # struct of the key columns
    def key_groups(self, keys: ArrayExportable, max_parallelism: int) -> ArrowArray: ...  # uint16
    def partition(self, keys: ArrayExportable, max_parallelism: int, slots: int) -> tuple[ArrowArray, ArrowArray]:
        """Rows by slot: (order, offsets). ``order`` (int32, n): row numbers grouped by slot, in their first order within each slot.
        ``offsets`` (int64, slots + 1): rows of slot s are order[offsets[s]:offsets[s + 1]]."""

@final
class RowCodec:
    def __init__(self, schema: SchemaExportable) -> None: ...
    def encode(self, values: ArrayExportable) -> ArrowArray: ...  # binary, null where the value is null
    def decode(self, rows: ArrayExportable) -> ArrowArray: ...

# --- rocksdb/ -------------------------------------------------------------------------------------------------
def load_rocksdb(path: str) -> None: ...

@final
class BaseOptions:
    def __init__(self, *, block_cache_bytes: int = ..., compression: str = "none", compaction_threads: int = 1, max_runs: int = 8) -> None: ...

@final
class BaseScan:
    """Entries of a base in key order; keeps the base open."""
    def __iter__(self) -> BaseScan: ...
    def __next__(self) -> ArrowArray: ...

@final
class Base:
    """A base opened read-only."""
    def __init__(self, directory: str, options: BaseOptions) -> None: ...
    def scan(self, lower: bytes = b"", upper: bytes = b"", batch_rows: int = 65536) -> BaseScan:
        """Entries in key order: record batches (key: binary, value: binary) with full store keys."""
    def close(self) -> None: ...

@final
class BaseWriter:
    def __init__(
        self,
        parent: str | None,
        directory: str,
        options: BaseOptions,
        expiry: Sequence[tuple[int, int, int, int]] = ...,
    ) -> None:
        """``expiry``: by state (id, cutoff, since, how far the cutoff moves from one merge of all tables to the next)."""
    def add(self, delta: ArrayExportable) -> None:
        """A delta batch (key_group: uint16, state: uint16, key: binary, value: binary or null). Later calls win over earlier ones."""
    @property
    def memory_bytes(self) -> int:
        """What the changes so far take: the last one of each key."""
    @property
    def expired(self) -> int:
        """Entries that finish left out because they are expired."""
    def finish(self) -> list[str]:
        """Names of the files of the new base (its folder holds just these)."""

# --- overlay/ and state/ --------------------------------------------------------------------------------------
@final
class Store:
    """The live state of one slot at one version: overlay over a base.

    A batch: ``begin(sequence)``, state operations, ``take_delta()`` (any number of times: each returns the changes since the last),
    then ``commit()``. There is no undo: a call that fails and may have changed something poisons the Store, which refuses everything
    from then on with an error of the first one's class that holds its text. Not thread-safe.
    """
    def __init__(
        self,
        key_schema: SchemaExportable,
        *,
        max_parallelism: int,
        first_key_group: int,
        end_key_group: int,
        null_keys: bool = False,
        complete: bool = False,
        delta_bytes_max: int = ...,
    ) -> None:
        """``complete``: backend hashmap; the overlay is everything and the base is never read after ``load``.
        ``delta_bytes_max``: keys, and values, that one ``take_delta`` gives at most, a single larger one apart."""
    # states; ids are stable for the life of the operator
    def value_state(self, state_id: int, value: SchemaExportable) -> ValueTable: ...
    def list_state(self, state_id: int, element: SchemaExportable) -> ListTable: ...
    def map_state(self, state_id: int, map_key: SchemaExportable, map_value: SchemaExportable) -> MapTable: ...
    def reducing_state(self, state_id: int, value: SchemaExportable, function: str) -> ReducingTable: ...
    def aggregating_state(self, state_id: int, value: SchemaExportable, function: str) -> AggregatingTable: ...
    def timers(self, state_id: int) -> TimerTable:
        """Ids from 0x8000 on are those of timers, and of nothing else."""
    # version
    def set_base(self, base: Base | None, sequence: int) -> None:
        """Moves to a base that holds the state at ``sequence``: what is pending from later sequences stays pending, the rest becomes clean."""
    def load(self, base: Base) -> None:
        """Backend hashmap: reads the whole base into the (empty) overlay."""
    def apply_delta(self, delta: ArrayExportable, sequence: int) -> None: ...
    @property
    def sequence(self) -> int: ...
    def begin(self, sequence: int) -> None: ...
    def set_schemas(self, state_id: int, schemas: ValueSchemas) -> None:
        """Of a state that had others before, while the Store holds nothing: what was written with them is read as the newest has it."""
    def set_expiry(
        self,
        state_id: int,
        *,
        cutoff_ms: int | None,
        since_ms: int | None,
        stamp_ms: int | None,
        refresh_on_read: bool = False,
    ) -> None:
        """What becomes of a state's entries with time, from here on: of the version at hand, or in the batch."""
    def take_delta(self) -> ArrowArray:
        """As many changes as fit into one piece; ``dirty_bytes`` is 0 when none is left."""
    def check(self) -> None:
        """Raises what a poisoned Store answers."""
    def commit(self) -> None: ...
    def reset(self) -> None:
        """Forgets the whole overlay (after a spill: the base holds it all). Declared states stay."""
    def evict_clean(self) -> None:
        """Forgets what is not pending."""
    @property
    def memory_bytes(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def dirty_bytes(self) -> int:
        """Of the batch at hand, since the last take_delta."""
    def distinct(self, keys: ArrayExportable) -> tuple[ArrowArray, ArrowArray]:
        """(codes: int32, one a row; rows: int32, the first row of each distinct key): rows[codes[i]] has the key of row i. Codes by first appearance."""
    # counters since the Store was made
    @property
    def counters(self) -> dict[str, int]:
        """lookups, base_reads, base_hits, base_scans, expired, written, removed; now: entries."""

@final
class ValueTable:
    """All ``keys`` as for KeyCodec; every key must hash into the slot (InvalidRequest otherwise)."""
    def get(self, keys: ArrayExportable) -> ArrowArray: ...  # one value a row, null where there is none
    def put(self, keys: ArrayExportable, values: ArrayExportable) -> None: ...  # null clears; the last row of a key wins
    def contains(self, keys: ArrayExportable) -> ArrowArray: ...  # bool
    def clear(self, keys: ArrayExportable) -> None: ...

@final
class ReducingTable:
    """Functions: sum, min, max, product, first, last, bool_and, bool_or. Overflow of an integer sum or product raises InvalidRequest."""
    def add(self, keys: ArrayExportable, values: ArrayExportable) -> ArrowArray: ...  # the value after each row; null rows change nothing
    def add_only(self, keys: ArrayExportable, values: ArrayExportable) -> None: ...
    def get(self, keys: ArrayExportable) -> ArrowArray: ...
    def clear(self, keys: ArrayExportable) -> None: ...

@final
class AggregatingTable:
    """Functions: count, avg, variance (sample), stddev (sample)."""
    def add(self, keys: ArrayExportable, values: ArrayExportable) -> ArrowArray: ...  # the result after each row
    def add_only(self, keys: ArrayExportable, values: ArrayExportable) -> None: ...
    def get(self, keys: ArrayExportable) -> ArrowArray: ...
    def clear(self, keys: ArrayExportable) -> None: ...

@final
class ListTable:
    def append(self, keys: ArrayExportable, values: ArrayExportable) -> None: ...  # one element a row; reads nothing
    def get(self, keys: ArrayExportable) -> ArrowArray: ...  # list<element>, one a row, empty where there is none
    def clear(self, keys: ArrayExportable) -> None: ...

@final
class MapTable:
    """``map_keys`` and ``map_values``: arrays as long as ``keys``."""
    def get(self, keys: ArrayExportable, map_keys: ArrayExportable) -> ArrowArray: ...
    def put(self, keys: ArrayExportable, map_keys: ArrayExportable, map_values: ArrayExportable) -> None: ...
    def contains(self, keys: ArrayExportable, map_keys: ArrayExportable) -> ArrowArray: ...
    def remove(self, keys: ArrayExportable, map_keys: ArrayExportable) -> None: ...
    def entries(self, keys: ArrayExportable) -> ArrowArray: ...  # map<key, value>, one a row, in map key order
    def count(self, keys: ArrayExportable) -> ArrowArray: ...  # int64: entries of each row's key
    def clear(self, keys: ArrayExportable) -> None: ...

@final
class TimerTable:
    """Timers: (key, time, namespace), each at most once.
    ``times``: int64 of any unit; ``namespaces``: strings; both as long as ``keys``, without nulls."""
    def register(self, keys: ArrayExportable, times: ArrayExportable, namespaces: ArrayExportable) -> None: ...  # reads nothing
    def delete(self, keys: ArrayExportable, times: ArrayExportable, namespaces: ArrayExportable) -> None: ...  # reads nothing
    def take_due(self, until: int, limit: int) -> ArrowArray:
        """struct<key: struct of the key columns, time: int64, namespace: string>: the first ``limit`` timers with time <= until, in order of
        (time, encoded key, namespace). They are removed. Fewer rows than ``limit``: no other is due."""
    def next_due(self) -> int | None:
        """Time of the slot's first timer, exact."""
    def list(self, keys: ArrayExportable) -> ArrowArray:
        """list<struct<time, namespace>>, one row a key, in order of time. Reads all timers of the keys' key groups."""

@final
class ValueSchemas:
    """The schemas that a state's values were written with: of versions 1, 2, …, and the newest. A field of a struct is, in all of them, the one
    of its name. ``defaults``: numbers of children from the newest down to a field, and the row that values from before the field have there."""
    def __init__(
        self, earlier: Sequence[SchemaExportable], newest: SchemaExportable, *, defaults: Sequence[tuple[Sequence[int], bytes]] = ...
    ) -> None: ...

@final
class StateCodec:
    """What one state keeps as Arrow columns, and back: for readers and writers of whole versions. Layout: docs/formats/value.md."""
    def __init__(
        self,
        key_schema: SchemaExportable,
        *,
        state_id: int,
        kind: str,
        max_parallelism: int,
        null_keys: bool = False,
        map_key: SchemaExportable | None = None,
        value: SchemaExportable | None = None,
        schemas: ValueSchemas | None = None,
    ) -> None:
        """``kind``: "value" (reducing and aggregating states too), "list" (operator states too), "map" (broadcast states too), "timers".
        ``value``: value, element or accumulator. ``schemas``: where the state had others before."""
    def decode(self, entries: ArrayExportable, *, cutoff_ms: int | None = None, since_ms: int | None = None) -> ArrowArray:
        """The state's own among entries of a base (key: binary, value: binary), without those that are expired: a struct of those of these
        that the state has: key (struct), time (int64), suffix (uint64 list index; map key; string namespace), value, stamp (int64, null
        where there is none), key_group (uint16); of lists also begins (bool): the element before, among these, is of another key."""
    def encode(
        self,
        *,
        keys: ArrayExportable | None = None,
        times: ArrayExportable | None = None,
        suffixes: ArrayExportable | None = None,
        values: ArrayExportable | None = None,
        stamps: ArrayExportable | None = None,
    ) -> ArrowArray:
        """The same columns to a delta batch (key_group, state, key, value), as ``BaseWriter.add`` and ``Store.apply_delta`` take it."""
