//! Macros that generate a struct with its defaults and keys from one table, and the words of an enum.

/// Generates a struct from a table of settings: its fields with their documentation, its defaults, a `Debug` that shows
/// no secret, and [`crate::setting::SettingsTable`].
///
/// A row consists of its documentation, the kind of row, a name, a type and a default:
///
/// - `key` is a setting that Centrifugo has too, `own` one that only Touchline has. The kind of its value may follow.
/// - `section` is a nested table. It may state another meaning for some of its keys. `own` before the list says that
///   Centrifugo has none of these keys.
/// - `plain` is a field that no single key sets.
///
/// A struct with a parameter has the constructor `at` instead of `Default`.
///
/// ```
/// use touchline_engine::setting::{SOME, SettingsTable as _, WrittenValue};
///
/// touchline_engine::settings! {
///     /// A kettle.
///     pub struct KettleSettings {
///         /// Cups that it boils.
///         own cups: usize = 4, SOME;
///     }
/// }
///
/// let mut kettle = KettleSettings::default();
/// assert_eq!(kettle.keys()[0].meaning, "Cups that it boils.");
/// assert!(kettle.set("cups", &WrittenValue::Text("6")).is_some_and(|set| set.is_ok()));
/// assert_eq!(kettle.cups, 6);
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $table:ident { $($rows:tt)* }
    ) => {
        $crate::settings! { @table $(#[$meta])* $table { $($rows)* } }
        $crate::settings! { @default $table { $($rows)* } }
    };
    (
        $(#[$meta:meta])*
        pub struct $table:ident ($parameter:ident: $of:ty) { $($rows:tt)* }
    ) => {
        $crate::settings! { @table $(#[$meta])* $table { $($rows)* } }
        $crate::settings! { @constructor $table ($parameter: $of) { $($rows)* } }
    };
    (@table
        $(#[$meta:meta])*
        $table:ident {
            $(
                $(#[doc = $doc:literal])+
                $what:ident $name:ident: $type:ty = $default:expr
                $(, $kind:expr)? $(=> $own:ident { $($other:ident: $text:expr;)* })?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $table {
            $(
                $(#[doc = $doc])+
                pub $name: $type,
            )*
        }

        impl ::std::fmt::Debug for $table {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($table));
                $($crate::setting_row! { debug $what shown, self, $name, $type $(, $kind)? })*
                shown.finish()
            }
        }

        impl $crate::setting::SettingsTable for $table {
            fn visit(&self, visit: &mut dyn FnMut($crate::setting::Key)) {
                $(
                    $crate::setting_row! {
                        visit $what visit, self, $name, $type, concat!($($doc),+)
                        $(, $kind)? $(=> $own { $($other: $text;)* })?
                    }
                )*
            }

            fn set(
                &mut self,
                path: &str,
                written: &$crate::setting::WrittenValue<'_>,
            ) -> Option<Result<$crate::setting::Filled, $crate::setting::Misfit>> {
                $($crate::setting_row! { set $what path, written, self, $name, $type $(, $kind)? })*
                None
            }
        }
    };
    (@default
        $table:ident {
            $(
                $(#[doc = $doc:literal])+
                $what:ident $name:ident: $type:ty = $default:expr
                $(, $kind:expr)? $(=> $own:ident { $($other:ident: $text:expr;)* })?;
            )*
        }
    ) => {
        impl Default for $table {
            fn default() -> Self {
                $table { $($name: $crate::setting_row! { default $what $type, $default },)* }
            }
        }
    };
    (@constructor
        $table:ident ($parameter:ident: $of:ty) {
            $(
                $(#[doc = $doc:literal])+
                $what:ident $name:ident: $type:ty = $default:expr
                $(, $kind:expr)? $(=> $own:ident { $($other:ident: $text:expr;)* })?;
            )*
        }
    ) => {
        impl $table {
            /// The defaults of a section that is served at this path.
            pub fn at($parameter: $of) -> Self {
                $table { $($name: $crate::setting_row! { default $what $type, $default },)* }
            }
        }
    };
}

/// Handles one row of the macro `settings!`, by its kind.
#[doc(hidden)]
#[macro_export]
macro_rules! setting_row {
    (kind $type:ty) => { <$type as $crate::setting::SettingValue>::KIND };
    (kind $type:ty, $kind:expr) => { $kind };

    (default section $type:ty, $default:expr) => { $default };
    (default plain $type:ty, $default:expr) => { $default };
    (default $what:ident $type:ty, $default:expr) => { <$type as $crate::setting::SettingValue>::of($default) };

    (debug section $shown:ident, $self:ident, $name:ident, $type:ty) => {
        $shown.field(stringify!($name), &$self.$name);
    };
    (debug plain $shown:ident, $self:ident, $name:ident, $type:ty) => {
        $shown.field(stringify!($name), &$self.$name);
    };
    (debug $what:ident $shown:ident, $self:ident, $name:ident, $type:ty $(, $kind:expr)?) => {
        $shown.field(
            stringify!($name),
            &$crate::setting::shown($crate::setting_row!(kind $type $(, $kind)?), &$self.$name),
        );
    };

    (set section $path:ident, $written:ident, $self:ident, $name:ident, $type:ty) => {
        if let Some(path) = $path.strip_prefix(concat!(stringify!($name), ".")) {
            return $crate::setting::SettingsTable::set(&mut $self.$name, path, $written);
        }
    };
    (set plain $path:ident, $written:ident, $self:ident, $name:ident, $type:ty) => {};
    (set $what:ident $path:ident, $written:ident, $self:ident, $name:ident, $type:ty $(, $kind:expr)?) => {
        if $path == stringify!($name) {
            let kind = $crate::setting_row!(kind $type $(, $kind)?);
            return Some($crate::setting::fill(&mut $self.$name, kind, $written));
        }
    };

    (visit section $visit:ident, $self:ident, $name:ident, $type:ty, $doc:expr
        $(=> $own:ident { $($other:ident: $text:expr;)* })?) => {
        $crate::setting::SettingsTable::visit(&$self.$name, &mut |mut key| {
            $(
                $crate::setting_row! { own $own key }
                $(
                    // This does not compile if the field does not exist.
                    let _ = &$self.$name.$other;
                    if key.path == stringify!($other) {
                        key.meaning = $text;
                    }
                )*
            )?
            key.path = format!(concat!(stringify!($name), ".{}"), key.path);
            $visit(key);
        });
    };
    (visit plain $visit:ident, $self:ident, $name:ident, $type:ty, $doc:expr) => {};
    (visit key $visit:ident, $self:ident, $name:ident, $type:ty, $doc:expr $(, $kind:expr)?) => {
        let kind = $crate::setting_row!(kind $type $(, $kind)?);
        $visit($crate::setting::described(stringify!($name), kind, &$self.$name, $doc, false));
    };
    (visit own $visit:ident, $self:ident, $name:ident, $type:ty, $doc:expr $(, $kind:expr)?) => {
        let kind = $crate::setting_row!(kind $type $(, $kind)?);
        $visit($crate::setting::described(stringify!($name), kind, &$self.$name, $doc, true));
    };

    (own own $key:ident) => { $key.is_ours = true; };
    (own with $key:ident) => {};
}

/// Makes an enum a type for settings: its variants and their words.
#[macro_export]
macro_rules! words_of {
    ($type:ty { $($variant:ident = $word:literal),+ $(,)? $(; alias $($alias:literal = $of:ident),+)? }) => {
        impl $crate::setting::SettingValue for $type {
            type Literal = $type;
            const KIND: $crate::setting::ValueKind =
                $crate::setting::ValueKind::Choice(&[$($word),+ $(, $($alias),+)?]);

            fn of(literal: $type) -> Self {
                literal
            }

            fn read(
                _: $crate::setting::ValueKind,
                written: &$crate::setting::WrittenValue<'_>,
            ) -> Result<Self, $crate::setting::Misfit> {
                match written {
                    $($crate::setting::WrittenValue::Text($word) => Ok(<$type>::$variant),)+
                    $($($crate::setting::WrittenValue::Text($alias) => Ok(<$type>::$of),)+)?
                    _ => Err(None),
                }
            }

            fn show(&self) -> String {
                match self {
                    $(<$type>::$variant => $word,)+
                }
                .to_owned()
            }
        }
    };
}
