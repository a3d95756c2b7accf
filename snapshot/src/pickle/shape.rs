//! Converts plain data to a snapshot.

mod held;
mod settings;
mod stacks;
mod traced;

use std::collections::HashMap;
use std::fmt::Display;

use self::stacks::Interned;
use super::key;
use super::tree::{Failure, Node, Tree, Value};
use crate::{Excess, PickleProblem, PoolId, Snapshot, TextId, Texts, Trace};

/// Returns the snapshot in a pickle, which contains a whole snapshot or only the segments.
pub(super) fn snapshot(tree: &Tree<'_>) -> Result<Snapshot, Failure> {
    let mut builder = Builder::new(tree);
    builder.make_room()?;
    let mut made = Snapshot::default();
    match tree.root {
        Value::Dict(root) => builder.whole(root, &mut made)?,
        Value::List(_) => made.segments = builder.segments(tree.root)?,
        other => return Err(builder.amiss(None, "the pickle", holds(other, "no snapshot"))),
    }
    made.pools = builder.pools.list;
    made.stacks = builder.interned.into_stacks();
    made.texts = builder.texts;
    Ok(made)
}

/// The state of the conversion.
struct Builder<'t, 'a> {
    tree: &'t Tree<'a>,
    interned: Interned,
    texts: Texts,
    /// By the position of the text in the file, since most texts are shared.
    text_ids: HashMap<(u32, u32), TextId>,
    pools: Pools,
}

struct Pools {
    list: Vec<PoolId>,
    numbers: HashMap<PoolId, u32>,
}

impl Pools {
    fn new() -> Self {
        let default = PoolId::default();
        Self { list: vec![default], numbers: HashMap::from([(default, 0)]) }
    }

    fn number(&mut self, pool: PoolId) -> u32 {
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(pool).or_insert_with(|| {
            self.list.push(pool);
            next
        })
    }
}

/// No known key or value is longer, in bytes.
const LONGEST_WORD: usize = 64;

type Made<T> = Result<T, Failure>;

impl<'t, 'a> Builder<'t, 'a> {
    fn new(tree: &'t Tree<'a>) -> Self {
        Self { tree, interned: Interned::default(), texts: Texts::new(), text_ids: HashMap::new(), pools: Pools::new() }
    }

    /// Reserves room for the numbers of stacks and frames.
    fn make_room(&mut self) -> Made<()> {
        self.interned.make_room(self.tree.nodes(), self.tree.budget).map_err(|excess| self.failure(None, excess.into()))
    }

    fn whole(&mut self, root: Node, made: &mut Snapshot) -> Made<()> {
        let mut found = false;
        for (name, value) in self.tree.entries(root) {
            match self.word(name) {
                key::SEGMENTS => {
                    made.segments = self.segments(value)?;
                    found = true;
                }
                key::TRACES => made.traces = self.traces(value)?,
                key::SETTINGS => made.settings = self.settings(value)?,
                key::ANNOTATIONS => made.annotations = self.annotations(value)?,
                key::OUTSIDE => made.outside = self.outside(value)?,
                _ => (),
            }
        }
        if found {
            return Ok(());
        }
        Err(self.amiss(Some(root), "the pickle", "has no 'segments'"))
    }

    fn traces(&mut self, value: Value) -> Made<Vec<Trace>> {
        let mut traces = Vec::new();
        for (index, value) in self.list(value, key::TRACES)?.enumerate() {
            let device = u32::try_from(index).unwrap_or(u32::MAX);
            let events = self.events(value, device)?;
            // A device without a history has an empty list.
            if !events.is_empty() {
                self.tree.budget.reserve(&mut traces, 1).map_err(|excess| self.failure(None, excess.into()))?;
                traces.push(Trace { device, events });
            }
        }
        Ok(traces)
    }

    /// Returns the values of a list or a tuple; none for None.
    fn list(&self, value: Value, what: &str) -> Made<impl Iterator<Item = Value> + use<'t, 'a>> {
        let node = match value {
            Value::List(node) | Value::Tuple(node) => Some(node),
            Value::None => None,
            other => return Err(self.amiss(None, what, holds(other, "no list"))),
        };
        let tree = self.tree;
        Ok(node.into_iter().flat_map(move |node| tree.values(node)))
    }

    /// Converts every dict of a list with `make`.
    fn each<T>(
        &mut self,
        value: Value,
        list: &str,
        entry: &str,
        mut make: impl FnMut(&mut Self, Node) -> Made<T>,
    ) -> Made<Vec<T>> {
        let mut items = Vec::new();
        for value in self.list(value, list)? {
            let node = self.dict(value, entry)?;
            self.count(&mut items, node)?;
            self.within(node, self.tree.budget.count_steps(self.tree.len(node)))?;
            items.push(make(self, node)?);
        }
        Ok(items)
    }

    fn dict(&self, value: Value, what: impl Display) -> Made<Node> {
        match value {
            Value::Dict(node) => Ok(node),
            other => Err(self.amiss(None, what, holds(other, "no dict"))),
        }
    }

    /// Returns a text that may be a known word; empty for any other value.
    fn word(&self, value: Value) -> &'a str {
        let bytes = self.tree.raw(value).unwrap_or(b"");
        // Every entry of a long dict may refer to one long text, and no known word is long.
        let bytes = if bytes.len() > LONGEST_WORD { b"" } else { bytes };
        std::str::from_utf8(bytes).unwrap_or("")
    }

    /// Returns the number of a text; none for any other value.
    fn text_id(&mut self, value: Value, node: Node) -> Made<TextId> {
        let Value::Text { start, length } = value else { return Ok(TextId::NONE) };
        if let Some(&id) = self.text_ids.get(&(start, length)) {
            return Ok(id);
        }
        let text = self.tree.text(value).unwrap_or_default();
        self.charge_new_text(text.len(), node)?;
        let id = self.texts.add(&text);
        self.text_ids.insert((start, length), id);
        Ok(id)
    }

    /// Charges for a text that is stored once, and for its lookup.
    fn charge_new_text(&self, bytes: usize, node: Node) -> Made<()> {
        let budget = self.tree.budget;
        self.within(node, budget.charge_text(bytes))?;
        self.within(node, budget.charge_entry::<(u32, u32), TextId>())
    }

    fn charge_text(&self, bytes: usize, node: Node) -> Made<()> {
        self.within(node, self.tree.budget.charge::<u8>(bytes))
    }

    /// Reserves room for one more value in a list.
    fn reserve<T>(&self, list: &mut Vec<T>, node: Node) -> Made<()> {
        self.within(node, self.tree.budget.reserve(list, 1))
    }

    /// Counts one more item, and reserves room for it in its list.
    fn count<T>(&self, list: &mut Vec<T>, node: Node) -> Made<()> {
        self.reserve(list, node)?;
        self.within(node, self.tree.budget.count_items(1))
    }

    /// Adds the position to an exceeded limit.
    fn within(&self, node: Node, charged: Result<(), Excess>) -> Made<()> {
        charged.map_err(|excess| self.failure(Some(node), excess.into()))
    }

    /// Returns a whole number, at least 0.
    fn whole_number(&self, value: Value, node: Node, name: &str) -> Made<u64> {
        match value {
            Value::Integer(number) if number >= 0 => Ok(number.cast_unsigned()),
            Value::Large(number) => Ok(number),
            other => {
                let what = format!("'{name}'");
                Err(self.amiss(Some(node), what, holds(other, "no whole number from 0 up")))
            }
        }
    }

    /// Returns an address or a handle: 64 bits, which some writers store as signed.
    fn bits(&self, value: Value, node: Node, name: &str) -> Made<u64> {
        match value {
            Value::Integer(number) => Ok(number.cast_unsigned()),
            other => self.whole_number(other, node, name),
        }
    }

    fn device(&self, value: Value, node: Node) -> Made<u32> {
        let number = self.whole_number(value, node, key::DEVICE)?;
        u32::try_from(number).map_err(|_| self.amiss(Some(node), "'device'", format!("is {number}")))
    }

    /// Returns the number of a pool; the default pool for anything that is not a pair of numbers.
    fn pool(&mut self, value: Value, node: Node) -> Made<u32> {
        let (Value::Tuple(pair) | Value::List(pair)) = value else { return Ok(0) };
        let mut numbers = self.tree.values(pair);
        let (Some(first), Some(second)) = (numbers.next(), numbers.next()) else { return Ok(0) };
        let first = self.bits(first, node, key::POOL_ID)?;
        let second = self.bits(second, node, key::POOL_ID)?;
        let pool = PoolId(first, second);
        if !self.pools.numbers.contains_key(&pool) {
            let budget = self.tree.budget;
            let room = budget.reserve(&mut self.pools.list, 1);
            self.within(node, room)?;
            self.within(node, budget.charge_entry::<PoolId, u32>())?;
        }
        Ok(self.pools.number(pool))
    }

    /// Returns the error that a value does not have the shape of a snapshot.
    fn amiss(&self, node: Option<Node>, what: impl Display, found: impl Into<String>) -> Failure {
        let problem = PickleProblem::Shape { what: what.to_string(), found: found.into() };
        self.failure(node, problem)
    }

    fn failure(&self, node: Option<Node>, problem: PickleProblem) -> Failure {
        Failure { offset: node.map_or(0, |node| self.tree.offset_of(node)), problem }
    }
}

fn holds(value: Value, instead: &str) -> String {
    format!("is {}, {instead}", value.noun())
}
