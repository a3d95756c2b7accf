//! Segments and traces: objects whose rows are charged.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};

use super::seeds::{ChargedBudget, seed};
use crate::rows::Items;
use crate::{Segment, StackId, Trace};

/// Binds a variable for each field of an object. Each key must appear exactly once; unknown keys are skipped.
macro_rules! fields {
    ($map:ident: $($field:ident = $read:expr),+ $(,)?) => {
        $(let mut $field = None;)+
        while let Some(key) = $map.next_key::<String>()? {
            match key.as_str() {
                $(stringify!($field) => once(&mut $field, stringify!($field), $read)?,)+
                _ => drop($map.next_value::<IgnoredAny>()?),
            }
        }
        $(let $field = $field.ok_or_else(|| A::Error::missing_field(stringify!($field)))?;)+
    };
}

/// Reads a segment; its stacks and its pool still have the numbers of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentSeed<'a>(pub(super) &'a ChargedBudget);

seed!(SegmentSeed<'_> => Segment, deserialize_map);

impl<'de> Visitor<'de> for SegmentSeed<'_> {
    type Value = Segment;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that is a segment")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Segment, A::Error> {
        self.0.within(self.0.budget.count_item())?;
        fields! { map:
            device = map.next_value()?,
            address = map.next_value()?,
            bytes = map.next_value()?,
            stream = map.next_value()?,
            kind = map.next_value()?,
            pool = map.next_value()?,
            elastic = map.next_value()?,
            order = map.next_value()?,
            stack = StackId(map.next_value()?),
            blocks = map.next_value_seed(Items::new(self.0))?,
        }
        Ok(Segment { device, address, bytes, stream, kind, pool, elastic, order, stack, blocks })
    }
}

/// Reads the events of a device; their references still have the numbers of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceSeed<'a>(pub(super) &'a ChargedBudget);

seed!(TraceSeed<'_> => Trace, deserialize_map);

impl<'de> Visitor<'de> for TraceSeed<'_> {
    type Value = Trace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that is the history of a device")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Trace, A::Error> {
        fields! { map: device = map.next_value()?, events = map.next_value_seed(Items::new(self.0))? }
        Ok(Trace { device, events })
    }
}

/// Stores a value, unless there is one already.
fn once<T, E: Error>(place: &mut Option<T>, name: &'static str, found: T) -> Result<(), E> {
    match place.replace(found) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(name)),
    }
}
