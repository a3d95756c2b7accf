//! Reading with a budget: data of variable size is charged before it is stored.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Excess;
use crate::budget::Budget;

/// Implements `DeserializeSeed` for a type that is its own visitor.
macro_rules! seed {
    ($seed:ty => $value:ty, $ask:ident) => {
        impl<'de> serde::de::DeserializeSeed<'de> for $seed {
            type Value = $value;

            fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<$value, D::Error> {
                input.$ask(self)
            }
        }
    };
}
pub(super) use seed;

/// The budget of one file, and the exceeded limit.
///
/// `serde` errors carry texts and no values, so the limit is stored here until the end of the read.
#[derive(Debug)]
pub(crate) struct ChargedBudget {
    pub(super) budget: Budget,
    excess: std::cell::Cell<Option<Excess>>,
}

impl ChargedBudget {
    pub(super) const fn new(budget: Budget) -> Self {
        Self { budget, excess: std::cell::Cell::new(None) }
    }

    /// The exceeded limit.
    pub(super) const fn excess(&self) -> Option<Excess> {
        self.excess.get()
    }

    /// Stores an exceeded limit, and returns an error that ends the read.
    pub(super) fn within<T, E: Error>(&self, charged: Result<T, Excess>) -> Result<T, E> {
        charged.map_err(|excess| {
            self.excess.set(Some(excess));
            E::custom(excess)
        })
    }

    /// Appends an item, such as an event or a block, to a list.
    pub(crate) fn add_item<T, E: Error>(&self, list: &mut Vec<T>, item: T) -> Result<(), E> {
        let charged = self.budget.reserve(list, 1);
        self.within(charged.and_then(|()| self.budget.count_item()))?;
        list.push(item);
        Ok(())
    }
}

/// Reads a value of fixed size, or one that is not larger than its text in the file.
#[derive(Debug)]
pub(super) struct Plain<T>(PhantomData<T>);

impl<T> Plain<T> {
    pub(super) const NEW: Self = Self(PhantomData);
}

impl<T> Clone for Plain<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Plain<T> {}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Plain<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<T, D::Error> {
        T::deserialize(input)
    }
}

/// Reads a value, and then charges for the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charged<'a, S, F> {
    pub(super) purse: &'a ChargedBudget,
    pub(super) each: S,
    pub(super) charge: F,
}

impl<'de, S, F> DeserializeSeed<'de> for Charged<'_, S, F>
where
    S: DeserializeSeed<'de>,
    F: FnOnce(&Budget, &S::Value) -> Result<(), Excess>,
{
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<S::Value, D::Error> {
        let value = self.each.deserialize(input)?;
        let charged = (self.charge)(&self.purse.budget, &value);
        self.purse.within(charged)?;
        Ok(value)
    }
}

/// Reads a list, whose room is charged as it grows.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'a, S> {
    pub(super) purse: &'a ChargedBudget,
    pub(super) each: S,
}

impl<'de, S: DeserializeSeed<'de> + Clone> DeserializeSeed<'de> for List<'_, S> {
    type Value = Vec<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de, S: DeserializeSeed<'de> + Clone> Visitor<'de> for List<'_, S> {
    type Value = Vec<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut found: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = found.next_element_seed(self.each.clone())? {
            let charged = self.purse.budget.reserve(&mut list, 1);
            self.purse.within(charged)?;
            list.push(value);
        }
        Ok(list)
    }
}
