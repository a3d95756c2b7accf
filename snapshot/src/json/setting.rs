//! Settings as JSON values.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::budget::check_settings;
use crate::{Excess, Setting};

/// Reads settings by key, if they are not too many.
pub(super) fn read_table<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<(String, Setting)>, D::Error> {
    let Setting::Table(table) = Setting::deserialize(input)? else {
        return Err(D::Error::custom("the settings are no object"));
    };
    check(&table, 0, &mut 0).map_err(D::Error::custom)?;
    Ok(table)
}

fn check(table: &[(String, Setting)], depth: usize, count: &mut usize) -> Result<(), Excess> {
    table.iter().try_for_each(|(_, value)| {
        *count += 1;
        check_settings(*count, depth)?;
        if let Setting::Table(table) = value { check(table, depth + 1, count) } else { Ok(()) }
    })
}

/// A derived implementation would copy a nested table once for each level.
impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(SettingVisitor)
    }
}

struct SettingVisitor;

impl<'de> Visitor<'de> for SettingVisitor {
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
        Ok(Setting::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Setting, A::Error> {
        let mut table = Vec::new();
        while let Some(entry) = map.next_entry()? {
            table.push(entry);
        }
        Ok(Setting::Table(table))
    }
}
