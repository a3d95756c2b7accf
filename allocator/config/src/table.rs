//! The macro behind the table of keys.

/// Generates [`Config`](super::Config) with its default and getters, the setters of its builder, the list of keys, and
/// the table in the documentation.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])*
        $vis:vis $field:ident: $type:ident $(<$inner:ident>)? = $default:expr,
            $name:literal $(| $alias:literal)*: $format:expr, $values:literal, $shown:literal;
    )*) => {
        /// How the allocator behaves.
        ///
        /// Every value is one that its key allows. The text form names only what differs from the default, and parses
        /// to the same configuration.
        ///
        /// ```
        /// # use cachette_config::Config;
        /// let config: Config = "expandable_segments:False, max_split_size_mb:64".parse()?;
        /// assert!(!config.expandable_segments());
        /// assert_eq!(config.max_split_bytes(), Some(64 << 20));
        /// assert_eq!(config.to_string(), "max_split_size_mb:64,expandable_segments:False");
        /// # Ok::<(), cachette_config::ConfigError>(())
        /// ```
        ///
        /// | key | value | default |
        /// |---|---|---|
        $(#[doc = concat!("| `", $name, "`" $(, ", `", $alias, "`")*, " | ", $values, " | ", $shown, " |")])*
        ///
        /// A switch is exactly `True` or `False`. Two spellings in one row are the same key. The keys from
        /// `memory_limit` on exist only in Cachette. PyTorch's `expandable_segments_reserve_by_class` is
        /// checked and has no effect: a request larger than the reserve gets addresses of its own. Each getter describes its key.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($field: $type $(<$inner>)?,)*
        }

        impl Config {
            const DEFAULT: Self = Self { $($field: $default,)* };

            $(
                $(#[doc = $doc])*
                #[doc = concat!("\n\nThe key is `", $name, "`.")]
                #[must_use]
                $vis const fn $field(&self) -> $type $(<$inner>)? {
                    self.$field
                }
            )*
        }

        impl Default for Config {
            fn default() -> Self {
                Self::DEFAULT
            }
        }

        impl ConfigBuilder {
            $(
                $(#[doc = $doc])*
                $vis fn $field(mut self, value: $crate::table::argument!($type $(<$inner>)?)) -> Self {
                    self.config.$field = value.into();
                    self
                }
            )*
        }

        /// Every key, in the order in which a configuration is written.
        static KEYS: &[ConfigKey] = &[
            $(ConfigKey {
                spellings: &[$name $(, $alias)*],
                doc: &[$($doc),*],
                values: $values,
                default: $shown,
                set: |config, word| {
                    config.$field = ($format.read)(word)?.into();
                    Some(())
                },
                text: |config| $format.text(config.$field, &Config::DEFAULT.$field),
                is_allowed: |config| $format.is_allowed(config.$field, config.large_segment_bytes),
                rule: |config| ($format.rule)(config.large_segment_bytes),
            },)*
        ];
    };
}

/// The type of a setter's argument: an optional field also accepts a plain value.
macro_rules! argument {
    (Option<$inner:ident>) => { impl Into<Option<$inner>> };
    ($type:ident) => { $type };
}

pub(super) use {argument, settings};
