//! The cases that a user selects.

use std::collections::BTreeSet;

use crate::case::Case;

/// The cases that a user selects.
///
/// Plain text matches anywhere in a name. Text with `::` matches from its beginning. Text with `*` matches a whole
/// name, where each `*` matches any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(String);

/// Why a filter selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// It is empty.
    #[error("the filter is empty; leave it out to run every case")]
    Empty,
    /// It contains a character that no name contains.
    #[error("'{text}' is no filter: '{character}' is in no case's name; use a-z, 0-9, '_', ':' and '*'")]
    Malformed {
        /// The filter.
        text: String,
        /// The first invalid character.
        character: char,
    },
    /// No case has a matching name.
    #[error("no case matches '{text}'; groups are {groups}")]
    NoMatch {
        /// The filter.
        text: String,
        /// Every group, separated by commas.
        groups: String,
    },
}

impl Filter {
    /// Reads a filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.is_empty() {
            return Err(FilterError::Empty);
        }
        match text.chars().find(|c| !is_legal(*c)) {
            Some(character) => Err(FilterError::Malformed { text: text.to_owned(), character }),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// Whether a case's name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        if self.0.contains('*') {
            matches_whole(&self.0, name)
        } else if self.0.contains("::") {
            name.starts_with(&self.0)
        } else {
            name.contains(&self.0)
        }
    }

    /// Returns the `cases` that match; none is an error.
    pub fn select<'c>(&self, cases: &'c [Case]) -> Result<Vec<&'c Case>, FilterError> {
        let chosen: Vec<_> = cases.iter().filter(|case| self.matches(case.name)).collect();
        if chosen.is_empty() {
            let groups: BTreeSet<_> = cases.iter().map(Case::group).collect();
            return Err(FilterError::NoMatch {
                text: self.0.clone(),
                groups: groups.into_iter().collect::<Vec<_>>().join(", "),
            });
        }
        Ok(chosen)
    }
}

fn is_legal(character: char) -> bool {
    character.is_ascii_lowercase() || character.is_ascii_digit() || "_:*".contains(character)
}

/// Returns whether `pattern`, in which `*` matches any text, matches all of `name`.
fn matches_whole(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(head) else { return false };
    (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| matches_whole(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn matches(filter: &str, name: &str) -> bool {
        Filter::parse(filter).unwrap().matches(name)
    }

    #[test]
    fn plain_text_matches_anywhere_and_a_group_from_the_beginning() {
        assert!(matches("record", "events::poll_before_record_is_done"));
        assert!(matches("memory::", "memory::addresses_are_aligned"));
        assert!(!matches("memory::", "virtual_memory::aliases"));
    }

    #[test]
    fn a_star_stands_for_anything_within_a_whole_name() {
        assert!(matches("events::*_done", "events::poll_before_record_is_done"));
        assert!(matches("*memory::*", "virtual_memory::aliases"));
        assert!(!matches("events::*_don", "events::poll_before_record_is_done"));
        assert!(matches("*", "anything"));
    }

    #[test]
    fn wrong_filters_say_what_is_allowed() {
        assert_eq!(Filter::parse(""), Err(FilterError::Empty));
        let error = Filter::parse("events poll").unwrap_err().to_string();
        assert!(error.contains("' ' is in no case's name"), "{error}");
        let error = Filter::parse("nonsense").unwrap().select(cases()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("no case matches 'nonsense'; groups are capture, "), "{text}");
    }
}
