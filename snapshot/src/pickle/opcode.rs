//! The opcodes of a pickle that snapshots need, by their names in the pickle module.

pub(super) const MARK: u8 = b'(';
pub(super) const STOP: u8 = b'.';
pub(super) const POP: u8 = b'0';
pub(super) const POP_MARK: u8 = b'1';
pub(super) const PROTO: u8 = 0x80;
pub(super) const FRAME: u8 = 0x95;

pub(super) const NONE: u8 = b'N';
pub(super) const NEWTRUE: u8 = 0x88;
pub(super) const NEWFALSE: u8 = 0x89;
pub(super) const BININT: u8 = b'J';
pub(super) const BININT1: u8 = b'K';
pub(super) const BININT2: u8 = b'M';
pub(super) const LONG1: u8 = 0x8A;
pub(super) const LONG4: u8 = 0x8B;
pub(super) const BINFLOAT: u8 = b'G';

pub(super) const BINSTRING: u8 = b'T';
pub(super) const SHORT_BINSTRING: u8 = b'U';
pub(super) const BINUNICODE: u8 = b'X';
pub(super) const SHORT_BINUNICODE: u8 = 0x8C;
pub(super) const BINUNICODE8: u8 = 0x8D;
pub(super) const BINBYTES: u8 = b'B';
pub(super) const SHORT_BINBYTES: u8 = b'C';
pub(super) const BINBYTES8: u8 = 0x8E;
pub(super) const BYTEARRAY8: u8 = 0x96;

pub(super) const EMPTY_TUPLE: u8 = b')';
pub(super) const TUPLE1: u8 = 0x85;
pub(super) const TUPLE2: u8 = 0x86;
pub(super) const TUPLE3: u8 = 0x87;
pub(super) const TUPLE: u8 = b't';
pub(super) const EMPTY_LIST: u8 = b']';
pub(super) const LIST: u8 = b'l';
pub(super) const APPEND: u8 = b'a';
pub(super) const APPENDS: u8 = b'e';
pub(super) const EMPTY_DICT: u8 = b'}';
pub(super) const DICT: u8 = b'd';
pub(super) const SETITEM: u8 = b's';
pub(super) const SETITEMS: u8 = b'u';

pub(super) const BINGET: u8 = b'h';
pub(super) const LONG_BINGET: u8 = b'j';
pub(super) const BINPUT: u8 = b'q';
pub(super) const LONG_BINPUT: u8 = b'r';
pub(super) const MEMOIZE: u8 = 0x94;

// The following opcodes need code. They are named in errors, and never run.
pub(super) const GLOBAL: u8 = b'c';
pub(super) const STACK_GLOBAL: u8 = 0x93;
pub(super) const INST: u8 = b'i';
/// Calls, builds and lookups of objects.
pub(super) const CALLS: [u8; 10] = [b'R', b'b', b'o', 0x81, 0x92, b'P', b'Q', 0x82, 0x83, 0x84];
