//! What the files of functions use.

pub(crate) use crate::abi::*;
pub(crate) use crate::context::current;
pub(crate) use crate::driver::*;
pub(crate) use crate::status::*;
