//! Settings.

use super::super::tree::{Node, Value};
use super::{Builder, Made};
use crate::Setting;
use crate::budget::check_settings;

impl Builder<'_, '_> {
    /// Reads settings by key; none if they are not a dict.
    pub(super) fn settings(&mut self, value: Value) -> Made<Vec<(String, Setting)>> {
        match value {
            Value::Dict(node) => self.table(node, 0, &mut 0),
            _ => Ok(Vec::new()),
        }
    }

    fn table(&mut self, node: Node, depth: usize, count: &mut usize) -> Made<Vec<(String, Setting)>> {
        let mut table = Vec::new();
        for (name, value) in self.tree.entries(node) {
            *count += 1;
            self.within(node, check_settings(*count, depth))?;
            let key = match name {
                Value::Integer(number) => number.to_string(),
                _ => match self.tree.text(name) {
                    Some(text) => text.into_owned(),
                    None => continue,
                },
            };
            self.charge_text(key.len(), node)?;
            if let Some(setting) = self.setting(value, node, depth, count)? {
                self.reserve(&mut table, node)?;
                table.push((key, setting));
            }
        }
        Ok(table)
    }

    /// Reads a setting; `None` for an unsupported value.
    fn setting(&mut self, value: Value, node: Node, depth: usize, count: &mut usize) -> Made<Option<Setting>> {
        Ok(Some(match value {
            Value::None => Setting::None,
            Value::Bool(on) => Setting::Switch(on),
            Value::Integer(number) => Setting::Integer(number),
            Value::Large(number) => Setting::whole(number),
            Value::Float(number) => Setting::Number(number),
            Value::Text { .. } => {
                let text = self.tree.text(value).unwrap_or_default();
                self.charge_text(text.len(), node)?;
                Setting::Text(text.into_owned())
            }
            Value::Dict(inner) => Setting::Table(self.table(inner, depth + 1, count)?),
            Value::Huge | Value::Bytes | Value::Tuple(_) | Value::List(_) => return Ok(None),
        }))
    }
}
