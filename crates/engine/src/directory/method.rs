//! The methods of the registry by name. Clients call them by `rpc`, backends as operations of the server API.

/// Generates the enum of methods, with their names, from one table.
macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident = $name:literal,)*) => {
        /// A method of the registry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RegistryMethod {
            $($(#[$doc])* $method,)*
        }

        impl RegistryMethod {
            /// All methods of the registry.
            pub const ALL: &[RegistryMethod] = &[$(RegistryMethod::$method),*];

            /// The method's name, without the prefix `registry.` that it has in an `rpc`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(RegistryMethod::$method => $name,)*
                }
            }

            /// The method with this name; `None` = there is no such method.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(RegistryMethod::$method),)*
                    _ => None,
                }
            }
        }
    };
}

methods! {
    /// Registers a name for a client.
    Register = "register",
    /// Ends the registration of a name.
    Unregister = "unregister",
    /// Replaces the metadata of a name.
    UpdateMeta = "update_meta",
    /// Looks up the owner of a name.
    Lookup = "lookup",
    /// Lists names by prefix.
    Names = "names",
    /// Counts the names, groups and memberships of a scope.
    Count = "count",
    /// Makes a client a member of a group.
    Join = "join",
    /// Ends a client's membership of a group.
    Leave = "leave",
    /// Lists the members of a group.
    Members = "members",
    /// Reads one member of a group.
    Member = "member",
    /// Lists groups by prefix.
    Groups = "groups",
    /// Reads the changes of a scope since a position.
    Changes = "changes",
    /// Sends a message to a name or a group.
    Send = "send",
    /// Calls a name or a group.
    Call = "call",
    /// The same as `call`: a client may use this name for the call of a group.
    MultiCall = "multi_call",
    /// Replies to a call. Only clients can use it.
    Reply = "reply",
    /// Acknowledges inbox messages. Only clients can use it.
    AcknowledgeInbox = "inbox.ack",
}

impl RegistryMethod {
    /// The registry method of a client's `rpc`. `None` = the `rpc` does not concern the registry. The inner `None` =
    /// the registry has no such method.
    pub fn from_rpc(name: &str) -> Option<Option<Self>> {
        match name.strip_prefix("registry.") {
            Some(name) => Some(Self::from_name(name)),
            None => Self::from_name(name).filter(|method| !method.is_operation()).map(Some),
        }
    }

    /// Whether backends can call it through the server API. The other methods concern messages and calls to a client,
    /// which only the client itself can answer.
    pub fn is_operation(self) -> bool {
        !matches!(self, RegistryMethod::Reply | RegistryMethod::AcknowledgeInbox)
    }

    /// Whether a backend that calls it acts for a client, whose id it passes.
    pub const fn acts_for_client(self) -> bool {
        use RegistryMethod::{Join, Leave, Register, Unregister, UpdateMeta};
        matches!(self, Register | Unregister | UpdateMeta | Join | Leave)
    }

    /// Whether the reply covers the entries of all nodes. It is incomplete until every node's entries have arrived.
    pub fn reads_all_nodes(self) -> bool {
        use RegistryMethod::{Count, Groups, Member, Members, Names};
        matches!(self, Names | Groups | Count | Members | Member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_found_by_its_name_and_no_other() {
        for method in RegistryMethod::ALL {
            assert_eq!(RegistryMethod::from_name(method.name()), Some(*method));
            assert_eq!(RegistryMethod::from_rpc(&format!("registry.{}", method.name())), Some(Some(*method)));
            let bare = (!method.is_operation()).then_some(Some(*method));
            assert_eq!(RegistryMethod::from_rpc(method.name()), bare, "{}", method.name());
        }
        for name in ["", "Register", "registry.register", "register ", "inbox"] {
            assert_eq!(RegistryMethod::from_name(name), None, "{name}");
        }
        assert_eq!(RegistryMethod::from_rpc("registry.unknown"), Some(None));
        assert_eq!(RegistryMethod::from_rpc("unknown"), None);
    }
}
