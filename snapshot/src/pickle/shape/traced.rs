//! Events and annotations.

use super::super::key;
use super::super::tree::{Node, Value};
use super::{Builder, Made, holds};
use crate::{Annotation, Event, Stage, TraceAction};

impl Builder<'_, '_> {
    pub(super) fn events(&mut self, value: Value, device: u32) -> Made<Vec<Event>> {
        self.each(value, &format!("'device_traces' of device {device}"), "an event", Self::event)
    }

    fn event(&mut self, node: Node) -> Made<Event> {
        let (mut action, mut address, mut bytes) = (None, None, None);
        let mut event = Event::default();
        for (name, value) in self.tree.entries(node) {
            match self.word(name) {
                key::ACTION => action = Some(self.action(value, node)?),
                key::ADDR | key::DEVICE_FREE => address = Some(self.bits(value, node, key::ADDR)?),
                key::SIZE => bytes = Some(self.whole_number(value, node, key::SIZE)?),
                key::STREAM => event.stream = self.bits(value, node, key::STREAM)?,
                key::TIME => event.time_us = self.time(value, node)?,
                key::FRAMES => event.stack = self.stack(value)?,
                key::FORWARD_FRAMES => event.forward_stack = self.stack(value)?,
                key::METADATA => event.metadata = self.text_id(value, node)?,
                key::CONTEXT if self.word(value) != key::NO_CONTEXT => {
                    event.context = self.text_id(value, node)?;
                }
                key::POOL_ID => event.pool = self.pool(value, node)?,
                _ => (),
            }
        }
        let lacks = |name| self.amiss(Some(node), "an event", format!("has no '{name}'"));
        event.action = action.ok_or_else(|| lacks(key::ACTION))?;
        event.address = address.ok_or_else(|| lacks(key::ADDR))?;
        event.bytes = bytes.ok_or_else(|| lacks(key::SIZE))?;
        Ok(event)
    }

    fn action(&self, value: Value, node: Node) -> Made<TraceAction> {
        let name = self.word(value);
        TraceAction::named(name).ok_or_else(|| {
            let name: String = name.escape_debug().take(40).collect();
            self.amiss(Some(node), "'action'", format!("'{name}' is not known"))
        })
    }

    fn time(&self, value: Value, node: Node) -> Made<i64> {
        match value {
            Value::Integer(time) => Ok(time),
            other => Err(self.amiss(Some(node), "'time_us'", holds(other, "no whole number"))),
        }
    }

    pub(super) fn annotations(&mut self, value: Value) -> Made<Vec<Annotation>> {
        self.each(value, "'external_annotations'", "an annotation", Self::annotation)
    }

    fn annotation(&mut self, node: Node) -> Made<Annotation> {
        let mut annotation = Annotation { name: String::new(), stage: Stage::Start, device: 0, time_us: 0 };
        let mut named = Value::None;
        for (name, value) in self.tree.entries(node) {
            match self.word(name) {
                key::NAME => named = value,
                key::STAGE if self.word(value) == key::END => annotation.stage = Stage::End,
                key::DEVICE => annotation.device = self.device(value, node)?,
                key::TIME => annotation.time_us = self.time(value, node)?,
                _ => (),
            }
        }
        // Decoded only here, since a dict may contain the key many times.
        let text = self.tree.text(named).unwrap_or_default();
        self.charge_text(text.len(), node)?;
        annotation.name = text.into_owned();
        Ok(annotation)
    }
}
