//! Enumerations whose variants have texts.

/// Declares an enumeration, the list `ALL` of its variants, and a method that returns the text of each.
macro_rules! enum_with_text {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $words:literal,)+
        }
        $(#[$method_doc:meta])*
        $method:ident
    ) => {
        $(#[$attribute])*
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every variant, in order of declaration.
            pub const ALL: [Self; [$($words),+].len()] = [$(Self::$variant),+];

            $(#[$method_doc])*
            #[must_use]
            pub const fn $method(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)+
                }
            }
        }
    };
}
pub(crate) use enum_with_text;
