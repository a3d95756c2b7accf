//! Settings as JSON values.

use std::cell::Cell;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Serialize, Serializer};

use super::seeds::{ChargedBudget, seed};
use crate::Setting;
use crate::budget::check_settings;

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

/// Reads settings by key, including nested ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableSeed<'a> {
    purse: &'a ChargedBudget,
    count: &'a Cell<usize>,
    depth: usize,
}

impl<'a> TableSeed<'a> {
    /// Creates a seed that counts the settings in `count`.
    pub(super) const fn new(purse: &'a ChargedBudget, count: &'a Cell<usize>) -> Self {
        Self { purse, count, depth: 0 }
    }

    /// Charges for a text and returns it.
    fn keep<E: Error>(self, text: &str) -> Result<String, E> {
        let charged = self.purse.budget.charge::<u8>(text.len());
        self.purse.within(charged)?;
        Ok(text.to_owned())
    }
}

seed!(TableSeed<'_> => Vec<(String, Setting)>, deserialize_map);

impl<'de> Visitor<'de> for TableSeed<'_> {
    type Value = Vec<(String, Setting)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            self.count.set(self.count.get() + 1);
            self.purse.within(check_settings(self.count.get(), self.depth))?;
            let value = map.next_value_seed(ValueSeed(self))?;
            self.purse.within(self.purse.budget.reserve(&mut entries, 1))?;
            entries.push((self.keep(&key)?, value));
        }
        Ok(entries)
    }
}

/// Reads the value of one key of a table.
#[derive(Clone, Copy, Debug)]
struct ValueSeed<'a>(TableSeed<'a>);

seed!(ValueSeed<'_> => Setting, deserialize_any);

impl<'de> Visitor<'de> for ValueSeed<'_> {
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

    fn visit_str<E: Error>(self, text: &str) -> Result<Setting, E> {
        self.0.keep(text).map(Setting::Text)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Setting, A::Error> {
        let deeper = TableSeed { depth: self.0.depth + 1, ..self.0 };
        deeper.visit_map(map).map(Setting::Table)
    }
}
