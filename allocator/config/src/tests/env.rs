//! What the environment sets.

use crate::{Config, ConfigError};

fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    update(Config::default(), variables)
}

fn update(mut config: Config, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let value = |wanted: &str| Some(variables.iter().find(|(name, _)| *name == wanted)?.1.to_owned());
    let skipped = config.read(value)?;
    skipped.into_iter().next().map_or(Ok(config), Err)
}

#[test]
fn segments_are_elastic_unless_the_environment_says_otherwise() {
    let variable = "PYTORCH_CUDA_ALLOC_CONF";
    for (text, elastic) in [("", true), ("never_block:True", true), ("expandable_segments:False", false)] {
        assert_eq!(read(&[(variable, text)]).unwrap().expandable_segments(), elastic, "{text}");
    }
    assert!(read(&[]).unwrap().expandable_segments());
}

#[test]
fn the_environment_changes_what_it_names() {
    let direct = Config::builder().expandable_segments(false).build().unwrap();
    let update = |text| update(direct.clone(), &[("CACHETTE_ALLOC_CONF", text)]).unwrap().to_string();
    assert_eq!(update("never_block:True"), "expandable_segments:False,never_block:True");
    assert_eq!(update("expandable_segments:True"), "");
}

#[test]
fn one_variable_is_read_and_cachettes_first() {
    assert_eq!(read(&[]), Ok(Config::default()));
    let all = [
        ("PYTORCH_ALLOC_CONF", "nonsense"),
        ("PYTORCH_HIP_ALLOC_CONF", "nonsense"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False"),
        ("CACHETTE_ALLOC_CONF", "never_block:True"),
    ];
    assert_eq!(read(&all).unwrap().to_string(), "never_block:True");
    assert_eq!(read(&all[..3]).unwrap().to_string(), "expandable_segments:False");

    let mut emptied = all;
    emptied[3].1 = " ";
    assert_eq!(read(&emptied).unwrap().to_string(), "expandable_segments:False");
}

#[test]
fn the_first_of_pytorchs_variables_counts_even_if_empty() {
    let both = [("PYTORCH_CUDA_ALLOC_CONF", ""), ("PYTORCH_ALLOC_CONF", "expandable_segments:False")];
    assert_eq!(read(&both), Ok(Config::default()));
    assert!(!read(&both[1..]).unwrap().expandable_segments());
}

#[test]
fn unknown_keys_of_pytorchs_variables_can_be_skipped() {
    let read = |name: &'static str| {
        let text = "pinned_future_key:[a:1,b:2],max_split_size_mb:64,future:7";
        let mut config = Config::default();
        let skipped = config.read(move |wanted| (wanted == name).then(|| text.to_owned()))?;
        Ok::<_, ConfigError>((config, skipped))
    };
    let (config, skipped) = read("PYTORCH_ALLOC_CONF").unwrap();
    assert_eq!(config.to_string(), "max_split_size_mb:64");
    let said: Vec<String> = skipped.iter().map(ToString::to_string).collect();
    assert!(said[0].starts_with("PYTORCH_ALLOC_CONF: at byte 0: there is no key 'pinned_future"));
    assert!(said[1].contains("there is no key 'future'") && said.len() == 2);
    let own = read("CACHETTE_ALLOC_CONF").unwrap_err();
    assert_eq!(own.variable(), Some("CACHETTE_ALLOC_CONF"));
}

#[test]
fn a_removed_key_has_no_effect_and_names_its_replacement() {
    for name in ["CACHETTE_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
        let mut config = Config::default();
        let text = "lend_across_streams:True,max_split_size_mb:64";
        let skipped = config.read(|wanted| (wanted == name).then(|| text.to_owned())).unwrap();
        assert_eq!(config.to_string(), "max_split_size_mb:64");
        let said = skipped[0].to_string();
        assert!(said.contains("lend_across_streams was removed and has no effect: elastic segments"), "{said}");
    }
    let direct = "elastic_slack:0.1".parse::<Config>().unwrap_err().to_string();
    assert!(direct.contains("elastic_setting:compact holds the least memory; delete the key"), "{direct}");
}

#[test]
fn a_mistake_names_its_variable() {
    let error = read(&[("PYTORCH_HIP_ALLOC_CONF", "caching:no")]).unwrap_err();
    assert_eq!(error.variable(), Some("PYTORCH_HIP_ALLOC_CONF"));
    assert!(error.to_string().starts_with("PYTORCH_HIP_ALLOC_CONF: at byte 8: caching: 'no' is not allowed"));
}

/// M23: any of three variables switches caching off.
#[test]
fn m23_the_environment_switches_caching_off() {
    for name in ["CACHETTE_NO_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"] {
        assert!(!read(&[(name, "1")]).unwrap().caching());
        assert!(read(&[(name, "0")]).unwrap().caching());
        assert!(read(&[(name, "")]).unwrap().caching());
        let both = [(name, "1"), ("CACHETTE_ALLOC_CONF", "caching:True")];
        assert!(!read(&both).unwrap().caching());
    }
}

/// `test_allocator_memory_fraction_setting`: 0, 0.5 and 1 are good, -0.1 and 1.1 are not.
#[test]
fn m15_the_environment_sets_the_memory_fraction() {
    let read = |value: &str| {
        let text = format!("per_process_memory_fraction:{value}");
        read(&[("PYTORCH_CUDA_ALLOC_CONF", text.as_str())])
    };
    assert_eq!(read("0").unwrap().memory_fraction(), Some(0.0));
    assert_eq!(read("0.5").unwrap().memory_fraction(), Some(0.5));
    assert_eq!(read("1").unwrap().memory_fraction(), None);
    for value in ["-0.1", "1.1"] {
        let error = read(value).unwrap_err().to_string();
        assert!(error.contains("is not allowed; use a number from 0 to 1"), "{error}");
    }
}
