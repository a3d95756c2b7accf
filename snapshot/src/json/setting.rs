//! Settings as JSON's own values.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Setting;

/// The value of one key.
#[derive(Debug)]
pub(super) struct Value<T>(pub(super) T);

/// Values by key, in their order.
#[derive(Debug, Default)]
pub(super) struct Table<T>(pub(super) T);

impl Serialize for Value<&Setting> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Setting::None => out.serialize_unit(),
            Setting::Switch(on) => out.serialize_bool(*on),
            Setting::Integer(number) => out.serialize_i64(*number),
            Setting::Number(number) => out.serialize_f64(*number),
            Setting::Text(text) => out.serialize_str(text),
            Setting::Table(table) => Table(table.as_slice()).serialize(out),
        }
    }
}

impl Serialize for Table<&[(String, Setting)]> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(self.0.iter().map(|(key, value)| (key, Value(value))))
    }
}

impl<'de> Deserialize<'de> for Value<Setting> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Setting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text, true, false, null or an object of them")
    }

    fn visit_unit<E>(self) -> Result<Setting, E> {
        Ok(Setting::None)
    }

    fn visit_bool<E>(self, on: bool) -> Result<Setting, E> {
        Ok(Setting::Switch(on))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Setting, E> {
        Ok(Setting::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Setting, E> {
        Ok(Setting::whole(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Setting, E> {
        Ok(Setting::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Setting, E> {
        Ok(Setting::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Setting, A::Error> {
        entries(map).map(Setting::Table)
    }
}

impl<'de> Deserialize<'de> for Table<Vec<(String, Setting)>> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(TableVisitor).map(Self)
    }
}

struct TableVisitor;

impl<'de> Visitor<'de> for TableVisitor {
    type Value = Vec<(String, Setting)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        entries(map)
    }
}

fn entries<'de, A: MapAccess<'de>>(mut map: A) -> Result<Vec<(String, Setting)>, A::Error> {
    let mut entries = Vec::new();
    while let Some((key, Value(value))) = map.next_entry()? {
        entries.push((key, value));
    }
    Ok(entries)
}
