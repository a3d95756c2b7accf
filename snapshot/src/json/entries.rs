//! Segments and traces: objects whose rows are charged.

use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::rows::{BlocksSeed, EventsSeed};
use super::seeds::Purse;
use crate::{Segment, SegmentKind, StackId, Trace};

/// Reads a segment; its stacks and its pool are still the numbers of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentSeed<'a>(pub(super) &'a Purse);

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum SegmentKey {
    Device,
    Address,
    Bytes,
    Stream,
    Kind,
    Pool,
    Elastic,
    Order,
    Stack,
    Blocks,
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Small,
    Large,
}

impl From<KindName> for SegmentKind {
    fn from(name: KindName) -> Self {
        match name {
            KindName::Small => Self::Small,
            KindName::Large => Self::Large,
        }
    }
}

impl<'de> DeserializeSeed<'de> for SegmentSeed<'_> {
    type Value = Segment;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Segment, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SegmentSeed<'_> {
    type Value = Segment;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that is a segment")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Segment, A::Error> {
        self.0.within(self.0.budget.count_item())?;
        let (mut device, mut address, mut bytes, mut stream) = (None, None, None, None);
        let (mut kind, mut pool, mut elastic, mut order) = (None, None, None, None);
        let (mut stack, mut blocks) = (None, None);
        while let Some(key) = map.next_key()? {
            match key {
                SegmentKey::Device => once(&mut device, "device", map.next_value()?)?,
                SegmentKey::Address => once(&mut address, "address", map.next_value()?)?,
                SegmentKey::Bytes => once(&mut bytes, "bytes", map.next_value()?)?,
                SegmentKey::Stream => once(&mut stream, "stream", map.next_value()?)?,
                SegmentKey::Kind => once(&mut kind, "kind", map.next_value::<KindName>()?)?,
                SegmentKey::Pool => once(&mut pool, "pool", map.next_value()?)?,
                SegmentKey::Elastic => once(&mut elastic, "elastic", map.next_value()?)?,
                SegmentKey::Order => once(&mut order, "order", map.next_value()?)?,
                SegmentKey::Stack => once(&mut stack, "stack", map.next_value()?)?,
                SegmentKey::Blocks => {
                    let found = map.next_value_seed(BlocksSeed(self.0))?;
                    once(&mut blocks, "blocks", found)?;
                }
                SegmentKey::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Segment {
            device: there(device, "device")?,
            address: there(address, "address")?,
            bytes: there(bytes, "bytes")?,
            stream: there(stream, "stream")?,
            kind: there(kind, "kind")?.into(),
            pool: there(pool, "pool")?,
            elastic: there(elastic, "elastic")?,
            order: there(order, "order")?,
            stack: StackId(there(stack, "stack")?),
            blocks: there(blocks, "blocks")?,
        })
    }
}

/// Reads the events of a device; what they name are still the numbers of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceSeed<'a>(pub(super) &'a Purse);

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum TraceKey {
    Device,
    Events,
    #[serde(other)]
    Unknown,
}

impl<'de> DeserializeSeed<'de> for TraceSeed<'_> {
    type Value = Trace;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Trace, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TraceSeed<'_> {
    type Value = Trace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that is the history of a device")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Trace, A::Error> {
        let (mut device, mut events) = (None, None);
        while let Some(key) = map.next_key()? {
            match key {
                TraceKey::Device => once(&mut device, "device", map.next_value()?)?,
                TraceKey::Events => {
                    let found = map.next_value_seed(EventsSeed(self.0))?;
                    once(&mut events, "events", found)?;
                }
                TraceKey::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Trace { device: there(device, "device")?, events: there(events, "events")? })
    }
}

/// Keeps a value, unless there is one already.
pub(super) fn once<T, E: Error>(place: &mut Option<T>, name: &'static str, found: T) -> Result<(), E> {
    match place.replace(found) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(name)),
    }
}

fn there<T, E: Error>(found: Option<T>, name: &'static str) -> Result<T, E> {
    found.ok_or_else(|| E::missing_field(name))
}
