//! Devices that environment variables hide.

use std::env;

/// Positions of the devices that are shown, of `count`.
///
/// ROCm's own variable is applied first; HIP's, or CUDA's where HIP's is not set, re-indexes what is left.
/// Over CUDA the driver beneath has applied CUDA's variable already, and it must not count twice.
pub(crate) fn shown(count: usize, over_cuda: bool) -> Vec<usize> {
    let variable = |name| env::var(name).ok().filter(|text| !text.is_empty());
    select(
        count,
        env::var("ROCR_VISIBLE_DEVICES").ok().as_deref(),
        re_indexes(variable("HIP_VISIBLE_DEVICES"), variable("CUDA_VISIBLE_DEVICES"), over_cuda).as_deref(),
    )
}

/// The list that re-indexes what ROCm shows.
fn re_indexes(hip: Option<String>, cuda: Option<String>, over_cuda: bool) -> Option<String> {
    hip.or(cuda.filter(|_| !over_cuda))
}

fn select(count: usize, rocr: Option<&str>, hip: Option<&str>) -> Vec<usize> {
    let all: Vec<_> = (0..count).collect();
    let left = rocr.map_or(all.clone(), |text| pick(&all, text));
    hip.map_or(left.clone(), |text| pick(&left, text))
}

/// The devices that a list names, up to the first that it names wrongly.
fn pick(from: &[usize], list: &str) -> Vec<usize> {
    list.split(',').map(|name| name.trim().parse::<usize>().ok()).map_while(|index| from.get(index?).copied()).collect()
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
    fn cudas_list_counts_where_hips_is_not_set_and_cuda_is_not_beneath() {
        let list = |text: &str| Some(text.to_owned());
        assert_eq!(re_indexes(list("1"), list("0"), false), list("1"));
        assert_eq!(re_indexes(None, list("0"), false), list("0"));
        assert_eq!(re_indexes(None, list("0"), true), None);
        assert_eq!(re_indexes(list("1"), list("0"), true), list("1"));
    }

    #[test]
    fn a_list_ends_where_it_is_wrong() {
        assert_eq!(select(2, None, Some("-1")), []);
        assert_eq!(select(2, None, Some("1,7,0")), [1]);
        assert_eq!(select(2, None, Some("first")), []);
        assert_eq!(select(2, Some(""), None), []);
    }
}
