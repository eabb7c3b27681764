//! A reply of the directory. Lists are kept as shared entries that are not copied. The thread that needs their JSON
//! writes it, not the directory's thread.

use std::sync::Arc;

use bytes::Bytes;
use touchline_registry::{Entry, OwnerId};

use super::answer;
use super::calls::CallReply;
use super::changes::ScopeChanges;
use super::presence_entry;
use crate::work::Work;

/// A reply to a [`super::DirectoryRequest`], and the work that it took.
#[derive(Debug)]
pub struct DirectoryReply {
    content: ReplyContent,
    work: u32,
}

#[derive(Debug)]
enum ReplyContent {
    Json(Bytes),
    Listed(Box<Listed>),
}

/// A reply whose JSON is not written yet.
#[derive(Debug)]
pub(super) enum Listed {
    /// Members of a channel that presence shows, and their total number.
    Presence(Vec<Entry>, u64),
    /// Members of a group, and their total number.
    Members(Vec<Entry>, u64),
    /// A page of a group's members, their total number, and where the next page starts; 0 = there is no next page.
    MemberPage(Vec<Entry>, u64, u32),
    /// A page of names, and where the next page starts; 0 = there is no next page.
    Names(Vec<Entry>, u32),
    /// A page of names in order, and whether there are more.
    NamesInOrder(Vec<Entry>, bool),
    /// The changes of a scope.
    Changes(ScopeChanges),
    /// A page of groups and their sizes, and where the next page starts; 0 = there is no next page.
    Groups(Vec<(Arc<str>, u32)>, u32),
    /// The replies to a call of a group.
    Replies(Vec<(OwnerId, CallReply)>),
}

impl DirectoryReply {
    /// A reply whose JSON is written later.
    pub(super) fn list(listed: Listed, work: Work) -> Self {
        DirectoryReply { content: ReplyContent::Listed(Box::new(listed)), work: work.units() }
    }

    /// The reply to a message that was sent to `copies` clients.
    pub(super) fn sent(copies: usize) -> Self {
        let json = answer::sent(copies);
        let work = Work { copies, bytes: json.len(), ..Work::default() };
        DirectoryReply { content: ReplyContent::Json(json.into()), work: work.units() }
    }

    /// The cost of the reply in addition to its command, in units of commands. One unit stands for 8 entries that were
    /// walked or written, for one copy of a message, or for 4,096 bytes.
    pub fn work(&self) -> u32 {
        self.work
    }

    /// The reply as JSON, written by this call.
    pub fn json(self) -> Bytes {
        match self.content {
            ReplyContent::Json(json) => json,
            ReplyContent::Listed(listed) => match *listed {
                Listed::Presence(shown, count) => presence_entry::write(&shown, count).into(),
                Listed::Members(members, count) => answer::members(&members, count).into(),
                Listed::MemberPage(members, count, next) => answer::member_page(&members, count, next).into(),
                Listed::Names(names, next) => answer::names(&names, next).into(),
                Listed::NamesInOrder(names, has_more) => answer::names_in_order(&names, has_more).into(),
                Listed::Changes(changes) => changes.json().into(),
                Listed::Groups(groups, next) => answer::groups(&groups, next).into(),
                Listed::Replies(replies) => answer::replies(&replies).into(),
            },
        }
    }
}

impl From<Vec<u8>> for DirectoryReply {
    fn from(json: Vec<u8>) -> Self {
        let work = Work { bytes: json.len(), ..Work::default() };
        DirectoryReply { content: ReplyContent::Json(json.into()), work: work.units() }
    }
}
