//! Devices that environment variables hide.

use std::env;

/// Positions of the devices that are shown, of `count`.
///
/// ROCm's own variable is applied first; HIP's, or CUDA's where HIP's is not set, re-indexes what is left.
pub(crate) fn shown(count: usize) -> Vec<usize> {
    let variable = |name| env::var(name).ok();
    let hip = variable("HIP_VISIBLE_DEVICES").filter(|text| !text.is_empty());
    let hip = hip.or_else(|| variable("CUDA_VISIBLE_DEVICES").filter(|text| !text.is_empty()));
    select(
        count,
        variable("ROCR_VISIBLE_DEVICES").as_deref(),
        hip.as_deref(),
    )
}

fn select(count: usize, rocr: Option<&str>, hip: Option<&str>) -> Vec<usize> {
    let all: Vec<_> = (0..count).collect();
    let left = rocr.map_or(all.clone(), |text| pick(&all, text));
    hip.map_or(left.clone(), |text| pick(&left, text))
}

/// The devices that a list names, up to the first that it names wrongly.
fn pick(from: &[usize], list: &str) -> Vec<usize> {
    let named = list
        .split(',')
        .map(|name| name.trim().parse::<usize>().ok());
    named.map_while(|index| from.get(index?).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_applied_one_after_the_other() {
        assert_eq!(select(2, None, None), [0, 1]);
        assert_eq!(select(2, Some("1"), None), [1]);
        assert_eq!(select(3, Some("2,1"), Some("1,0")), [1, 2]);
    }

    #[test]
    fn a_list_ends_where_it_is_wrong() {
        assert_eq!(select(2, None, Some("-1")), []);
        assert_eq!(select(2, None, Some("1,7,0")), [1]);
        assert_eq!(select(2, None, Some("first")), []);
        assert_eq!(select(2, Some(""), None), []);
    }
}
