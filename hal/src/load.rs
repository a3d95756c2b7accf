//! A vendor's library, opened at run time.
//!
//! ```
//! use cachette_hal::load::{Candidate, Library};
//! use cachette_hal::{LoadError, symbol_table};
//!
//! symbol_table! {
//!     /// The functions of the mathematics library that this program needs.
//!     pub struct Mathematics {
//!         required {
//!             /// Cosine.
//!             cosine as "cos": fn(angle: f64) -> f64;
//!         }
//!         optional {
//!             /// Sine and cosine of half-turns.
//!             cospi: fn(f64) -> f64;
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), LoadError> {
//! let names = [Candidate::Loaded("libm.so.6".into()), Candidate::Name("libm.so.6".into())];
//! // SAFETY: opening the C library's own part runs nothing harmful.
//! let library = unsafe { Library::open_first(&names) }?;
//! let mathematics = Mathematics::resolve(&library)?;
//! // SAFETY: this is C's `double cos(double)`.
//! assert_eq!(unsafe { (mathematics.cosine)(0.0) }, 1.0);
//! if let Err(reason) = mathematics.cospi() {
//!     println!("without cospi: {reason}");
//! }
//! # Ok(())
//! # }
//! ```

use std::ffi::{OsStr, c_int};
use std::fmt;
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix;

use crate::{LoadError, Tried};

/// Makes `dlopen` find a library that is loaded already, and load none.
const RTLD_NOLOAD: c_int = 0x4;

/// Where a library may be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// A copy of this name that the process has loaded already.
    Loaded(String),
    /// A name that the system searches for.
    Name(String),
    /// A file.
    Path(PathBuf),
}

impl Candidate {
    /// Opens the library, or returns a short reason why not.
    ///
    /// # Safety
    ///
    /// The library's initialisers are sound to run.
    unsafe fn open(&self) -> Result<unix::Library, String> {
        let (name, search) = match self {
            Self::Loaded(name) => (OsStr::new(name), RTLD_NOLOAD),
            Self::Name(name) => (OsStr::new(name), 0),
            Self::Path(path) => (path.as_os_str(), 0),
        };
        let flags = unix::RTLD_NOW | unix::RTLD_LOCAL | search;
        // SAFETY: the caller's promise about the initialisers.
        let opened = unsafe { unix::Library::open(Some(name), flags) };
        opened.map_err(|error| match (self, error) {
            (Self::Loaded(_), _) => "not loaded in this process".to_owned(),
            (_, libloading::Error::DlOpenUnknown) => "no reason given".to_owned(),
            (_, error) => shorten(&error.to_string(), &name.to_string_lossy()),
        })
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded(name) | Self::Name(name) => f.write_str(name),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// A library of C functions, open until the process ends.
///
/// It is never closed: drivers start threads and register exit handlers, which would crash after an unmap. Functions
/// resolved from it therefore stay valid.
#[derive(Debug)]
pub struct Library {
    name: String,
    library: ManuallyDrop<unix::Library>,
}

impl Library {
    /// Opens the first candidate that can be opened.
    ///
    /// Its symbols are not visible to other libraries (`RTLD_LOCAL`). All of its undefined symbols are bound at once
    /// (`RTLD_NOW`), so an incomplete library fails here.
    ///
    /// # Safety
    ///
    /// Each candidate is the library that it names, so that its initialisers are sound to run.
    pub unsafe fn open_first(candidates: &[Candidate]) -> Result<Self, LoadError> {
        let mut tried: Vec<Tried> = Vec::new();
        for candidate in candidates {
            // SAFETY: the caller's promise.
            match unsafe { candidate.open() } {
                Ok(library) => {
                    return Ok(Self { name: candidate.to_string(), library: ManuallyDrop::new(library) });
                }
                Err(why) => {
                    let name = candidate.to_string();
                    // The search for a name says more than that no copy of it is loaded.
                    tried.retain(|earlier| earlier.name != name);
                    tried.push(Tried { name, why });
                }
            }
        }
        Err(LoadError::LibraryMissing { tried })
    }

    /// The name or path that was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Finds a function; `None` if the library does not export it.
    ///
    /// [`symbol_table!`](crate::symbol_table) is the usual way.
    ///
    /// # Safety
    ///
    /// `F` is a type of pointers to `unsafe extern "C"` functions.
    #[must_use]
    pub unsafe fn find<F: Copy>(&self, symbol: &str) -> Option<F> {
        // A symbol may be defined as null, which a function pointer may not be; so the option is read.
        // SAFETY: `Option` of a function pointer has the layout of C's pointer; that `F` is one is the caller's
        // promise. The function outlives `self`, since the library is never closed.
        let found = unsafe { self.library.get::<Option<F>>(symbol.as_bytes()) };
        found.ok().and_then(|found| *found)
    }
}

/// The file of the first library in this process whose file name begins with `stem`, such as `libcuda.so`.
///
/// The loader finds a library by its soname and by the name under which it was opened. A copy that a wheel has renamed
/// has neither, and is found only here. It is `None` if `/proc` is not mounted.
#[must_use]
pub fn loaded_file(stem: &str) -> Option<PathBuf> {
    find_file(&fs::read_to_string("/proc/self/maps").ok()?, stem)
}

fn find_file(maps: &str, stem: &str) -> Option<PathBuf> {
    // A line has five fields and the path, which may contain spaces.
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is_such = |path: &&Path| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with(stem))
    };
    paths.into_iter().find(is_such).map(Path::to_path_buf)
}

/// Removes redundant parts of the loader's text.
fn shorten(text: &str, name: &str) -> String {
    let text = text.strip_prefix(name).unwrap_or(text);
    text.strip_prefix(": ").unwrap_or(text).replace("cannot open shared object file: ", "")
}

/// Declares structs of C functions and the way to resolve each from a [`Library`](crate::load::Library).
///
/// A struct gets `resolve(&Library) -> Result<Self, LoadError>`, which lists every missing required symbol, not just
/// the first. A required function is a field. An optional one is a method that returns `Result<function, Reason>`, with
/// [`Reason::NoSymbol`](crate::Reason::NoSymbol) if it is missing. `name as "symbol"` gives a function another name
/// than its symbol. The section `optional` can be left out; the module [`load`](crate::load) shows an example.
#[macro_export]
macro_rules! symbol_table {
    ($(
        $(#[$attribute:meta])*
        $visible:vis struct $table:ident {
            required {
                $(
                    $(#[$required_doc:meta])*
                    $required:ident $(as $required_symbol:literal)? :
                        fn($($required_arguments:tt)*) $(-> $required_answer:ty)?;
                )*
            }
            $(optional {
                $(
                    $(#[$optional_doc:meta])*
                    $optional:ident $(as $optional_symbol:literal)? :
                        fn($($optional_arguments:tt)*) $(-> $optional_answer:ty)?;
                )*
            })?
        }
    )+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        $visible struct $table {
            $(
                $(#[$required_doc])*
                $visible $required:
                    unsafe extern "C" fn($($required_arguments)*) $(-> $required_answer)?,
            )*
            $($(
                $optional: Option<
                    unsafe extern "C" fn($($optional_arguments)*) $(-> $optional_answer)?
                >,
            )*)?
        }

        impl $table {
            /// Resolves every function, or lists every required symbol that the library lacks.
            $visible fn resolve(
                library: &$crate::load::Library,
            ) -> ::std::result::Result<Self, $crate::LoadError> {
                $(
                    // SAFETY: the field that takes it is a pointer to an `unsafe extern "C"` function.
                    let $required = unsafe {
                        library.find($crate::symbol_name!($required $($required_symbol)?))
                    };
                )*
                let table = || ::std::option::Option::Some(Self {
                    $($required: $required?,)*
                    $($(
                        // SAFETY: the field is a pointer to an `unsafe extern "C"` function.
                        $optional: unsafe {
                            library.find($crate::symbol_name!($optional $($optional_symbol)?))
                        },
                    )*)?
                });
                table().ok_or_else(|| {
                    let missing: &[::std::option::Option<&'static str>] = &[
                        $(
                            $required.is_none().then_some(
                                $crate::symbol_name!($required $($required_symbol)?)
                            ),
                        )*
                    ];
                    $crate::LoadError::SymbolsMissing {
                        library: library.name().to_owned(),
                        symbols: missing.iter().copied().flatten().collect(),
                    }
                })
            }

            $($(
                $(#[$optional_doc])*
                $visible fn $optional(&self) -> ::std::result::Result<
                    unsafe extern "C" fn($($optional_arguments)*) $(-> $optional_answer)?,
                    $crate::Reason,
                > {
                    self.$optional.ok_or($crate::Reason::NoSymbol(
                        $crate::symbol_name!($optional $($optional_symbol)?)
                    ))
                }
            )*)?
        }
    )+};
}

/// Declares a struct of tables: the first must resolve, and each of the others does, or has the reason why not.
#[macro_export]
macro_rules! symbol_groups {
    ($(#[$attribute:meta])* $visible:vis struct $name:ident { $core:ident: $first:ty; $($group:ident: $table:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug)]
        $visible struct $name {
            $visible $core: $first,
            $($visible $group: ::std::result::Result<$table, $crate::Reason>,)*
        }

        impl $name {
            /// Resolves every table; fails if the first lacks a function.
            $visible fn resolve(library: &$crate::load::Library) -> ::std::result::Result<Self, $crate::LoadError> {
                ::std::result::Result::Ok(Self {
                    $core: <$first>::resolve(library)?,
                    $($group: <$table>::resolve(library).map_err($crate::Reason::from),)*
                })
            }
        }
    };
}

/// The symbol of a function in [`symbol_table!`](crate::symbol_table).
#[doc(hidden)]
#[macro_export]
macro_rules! symbol_name {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $symbol:literal) => {
        $symbol
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_among_mappings_by_how_its_name_begins() {
        let maps = "\
7f00-7f10 r--p 00000000 fd:01 42                         /usr/lib/libm.so.6
7f10-7f20 rw-p 00000000 00:00 0
7f20-7f30 r-xp 00000000 fd:01 43                         /home/a b/torch/lib/libamdhip64-1a2b.so.7
7f30-7f40 rw-p 00000000 00:00 0                          [heap]
";
        let packed = PathBuf::from("/home/a b/torch/lib/libamdhip64-1a2b.so.7");
        assert_eq!(find_file(maps, "libamdhip64"), Some(packed));
        assert_eq!(find_file(maps, "amdhip64"), None);
        assert_eq!(find_file(maps, "heap"), None);
    }
}
