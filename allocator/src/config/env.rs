//! The configuration that the environment asks for.

use super::{Config, ConfigError};

/// The variables that may hold a configuration; the first that is not empty is read, alone.
const CONFIGURATIONS: [&str; 4] = [
    "CACHETTE_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
];

/// The variables of which any, set to `1`, switches caching off.
const NO_CACHING: [&str; 3] = [
    "CACHETTE_NO_MEMORY_CACHING",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_NO_HIP_MEMORY_CACHING",
];

impl Config {
    /// Reads the configuration from the environment.
    ///
    /// The text is that of `CACHETTE_ALLOC_CONF`. Where that is unset or empty, it is that of the first of
    /// `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF` and `PYTORCH_ALLOC_CONF` that is set and not
    /// empty. Nothing is merged: one variable is read, and the others are not looked at.
    ///
    /// Any of `CACHETTE_NO_MEMORY_CACHING`, `PYTORCH_NO_CUDA_MEMORY_CACHING` and
    /// `PYTORCH_NO_HIP_MEMORY_CACHING`, set to `1`, switches caching off, whatever the text says.
    pub fn from_env() -> Result<Self, ConfigError> {
        // Bytes that are not UTF-8 become a character that no key admits, and so are diagnosed.
        Self::from_lookup(|name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// Reads the configuration from variables that `lookup` answers for; see [`from_env`](Self::from_env).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let text = CONFIGURATIONS.into_iter().find_map(|name| {
            let text = lookup(name).filter(|text| !text.trim().is_empty())?;
            Some((name, text))
        });
        let mut config = match text {
            Some((name, text)) => text
                .parse::<Self>()
                .map_err(|error| error.in_variable(name))?,
            None => Self::default(),
        };
        if NO_CACHING
            .into_iter()
            .any(|name| lookup(name).is_some_and(|value| value == "1"))
        {
            config.caching = false;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_lookup(|wanted| {
            variables
                .iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| (*value).to_owned())
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
        assert_eq!(
            read(&all[..3]).unwrap().to_string(),
            "expandable_segments:True"
        );

        let mut emptied = all;
        emptied[3].1 = " ";
        assert_eq!(
            read(&emptied).unwrap().to_string(),
            "expandable_segments:True"
        );
    }

    #[test]
    fn a_mistake_names_its_variable() {
        let error = read(&[("PYTORCH_HIP_ALLOC_CONF", "caching:no")]).unwrap_err();
        assert_eq!(error.variable(), Some("PYTORCH_HIP_ALLOC_CONF"));
        assert!(
            error
                .to_string()
                .starts_with("PYTORCH_HIP_ALLOC_CONF: at byte 8: caching: 'no' is not allowed")
        );
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
            assert!(
                error.contains("is not allowed; use a number from 0 to 1"),
                "{error}"
            );
        }
    }
}
