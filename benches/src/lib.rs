//! Benchmarks of Cachette.
//!
//! | module | what it measures |
//! |---|---|
//! | [`workload`] | time of allocate-and-free pairs: the loops, for anything that is a [`Subject`] |
//! | [`suite`] | the rows of `cachette bench`, made of those loops |
//! | [`instructions`] | instructions a pair, counted by callgrind |
//! | [`growth`] | the same of other operations, as the number of things around them grows |
//!
//! The loops draw the same numbers in the same order as the programs that measure other allocators, so rows
//! of the same name can be compared.

pub mod growth;
pub mod instructions;
pub mod random;
pub mod subject;
pub mod suite;
pub mod workload;

pub use subject::Subject;
