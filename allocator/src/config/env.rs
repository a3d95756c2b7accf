//! The configuration that the environment asks for.

use super::{Config, ConfigError};

/// The variable that holds a configuration, unless it is empty.
const OWN: &str = "CACHETTE_ALLOC_CONF";

/// PyTorch's variables, in its order; the first that is set is read, even if it is empty.
const OF_PYTORCH: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// The variables of which any, set to `1`, switches caching off.
const NO_CACHING: [&str; 3] =
    ["CACHETTE_NO_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"];

impl Config {
    /// Reads the configuration from the environment.
    ///
    /// The text is that of `CACHETTE_ALLOC_CONF`. Where that is unset or empty, it is that of the first of
    /// `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF` and `PYTORCH_ALLOC_CONF` that is set, as PyTorch
    /// chooses it. Nothing is merged: one variable is read, and the others are not looked at.
    ///
    /// Any of `CACHETTE_NO_MEMORY_CACHING`, `PYTORCH_NO_CUDA_MEMORY_CACHING` and
    /// `PYTORCH_NO_HIP_MEMORY_CACHING`, set to `1`, switches caching off, whatever the text says.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(variable)
    }

    /// Reads the configuration from the environment, and leaves out the keys in PyTorch's variables that there are not.
    ///
    /// What is left out is returned; see [`update_known`](Self::update_known).
    pub fn from_env_known() -> Result<(Self, Vec<ConfigError>), ConfigError> {
        Self::read(variable)
    }

    /// Reads the configuration from variables that `lookup` answers for; see [`from_env`](Self::from_env).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let (config, left_out) = Self::read(lookup)?;
        left_out.into_iter().next().map_or(Ok(config), Err)
    }

    fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let (mut config, mut left_out) = (Self::default(), Vec::new());
        let own = lookup(OWN).filter(|text| !text.trim().is_empty());
        if let Some(text) = own {
            config.update(&text).map_err(|error| error.in_variable(OWN))?;
        } else if let Some((name, text)) = OF_PYTORCH.into_iter().find_map(|name| Some((name, lookup(name)?))) {
            let known = config.update_known(&text);
            let known = known.map_err(|error| error.in_variable(name))?;
            left_out.extend(known.into_iter().map(|error| error.in_variable(name)));
        }
        if NO_CACHING.into_iter().any(|name| lookup(name).is_some_and(|value| value == "1")) {
            config.caching = false;
        }
        Ok((config, left_out))
    }
}

/// A variable of the process.
fn variable(name: &str) -> Option<String> {
    // Bytes that are not UTF-8 become a character that no key admits, and so are diagnosed.
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_lookup(|wanted| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(read(&[]), Ok(Config::default()));
    }

    #[test]
    fn the_first_variable_that_is_not_empty_is_read_alone() {
        let all = [
            ("PYTORCH_ALLOC_CONF", "nonsense"),
            ("PYTORCH_HIP_ALLOC_CONF", "nonsense"),
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
            ("CACHETTE_ALLOC_CONF", "never_block:True"),
        ];
        assert_eq!(read(&all).unwrap().to_string(), "never_block:True");
        assert_eq!(read(&all[..3]).unwrap().to_string(), "expandable_segments:True");

        let mut emptied = all;
        emptied[3].1 = " ";
        assert_eq!(read(&emptied).unwrap().to_string(), "expandable_segments:True");
    }

    #[test]
    fn of_pytorchs_variables_the_first_that_is_set_counts() {
        let both = [("PYTORCH_CUDA_ALLOC_CONF", ""), ("PYTORCH_ALLOC_CONF", "expandable_segments:True")];
        assert_eq!(read(&both), Ok(Config::default()));
        assert!(read(&both[1..]).unwrap().expandable_segments());
    }

    #[test]
    fn keys_that_pytorch_alone_has_are_left_out_if_wanted() {
        let read = |name: &'static str| {
            let text = "pinned_future_key:[a:1,b:2],max_split_size_mb:64,future:7";
            Config::read(move |wanted| (wanted == name).then(|| text.to_owned()))
        };
        let (config, left_out) = read("PYTORCH_ALLOC_CONF").unwrap();
        assert_eq!(config.to_string(), "max_split_size_mb:64");
        let said: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        assert!(said[0].starts_with("PYTORCH_ALLOC_CONF: at byte 0: there is no key 'pinned_future"));
        assert!(said[1].contains("there is no key 'future'") && said.len() == 2);
        let own = read("CACHETTE_ALLOC_CONF").unwrap_err();
        assert_eq!(own.variable(), Some("CACHETTE_ALLOC_CONF"));
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
        for name in NO_CACHING {
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
}
