//! What the files of functions use.

pub(crate) use cachette_hal_hip::status::*;
pub(crate) use cachette_hal_hip::types::*;

pub(crate) use crate::abi::*;
pub(crate) use crate::machine::*;
