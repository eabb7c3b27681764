//! An answer of the directory on its way to its asker. Lists travel as entries, which are shared and not copied; their
//! JSON is written where it is wanted, not on the thread that everybody needs.

use std::sync::Arc;

use bytes::Bytes;
use touchline_registry::{Entry, OwnerId};

use super::answer;
use super::calls::Reply;
use super::presence;
use super::watch::Changes;
use crate::work::Work;

/// An answer to an [`super::DirectoryRequest`], and what it has cost.
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

/// An answer that is not written yet.
#[derive(Debug)]
pub(super) enum Listed {
    /// Members that are shown of a channel, and how many there are.
    Presence(Vec<Entry>, u64),
    /// Members of a group, and how many there are.
    Members(Vec<Entry>, u64),
    /// A page of them, how many there are, and where the next page starts, 0 = there is none.
    MemberPage(Vec<Entry>, u64, u32),
    /// A page, and where the next one starts, 0 = there is none.
    Names(Vec<Entry>, u32),
    /// What has changed.
    Changes(Changes),
    /// A page of groups and their sizes, and where the next one starts, 0 = there is none.
    Groups(Vec<(Arc<str>, u32)>, u32),
    /// The answers to a call of a group.
    Replies(Vec<(OwnerId, Reply)>),
}

impl DirectoryReply {
    /// An answer that is written later.
    pub(super) fn list(listed: Listed, work: Work) -> Self {
        DirectoryReply { content: ReplyContent::Listed(Box::new(listed)), work: work.units() }
    }

    /// An answer for which messages were given to so many clients.
    pub(super) fn sent(copies: usize) -> Self {
        let json = answer::sent(copies);
        let work = Work { copies, bytes: json.len(), ..Work::default() };
        DirectoryReply { content: ReplyContent::Json(json.into()), work: work.units() }
    }

    /// What the answer costs besides its command, in units of commands: one for 8 entries walked or written, one for
    /// each copy of a message, one for 4,096 bytes.
    pub fn work(&self) -> u32 {
        self.work
    }

    /// The answer as JSON, written here and now.
    pub fn json(self) -> Bytes {
        match self.content {
            ReplyContent::Json(json) => json,
            ReplyContent::Listed(listed) => match *listed {
                Listed::Presence(shown, count) => presence::write(&shown, count).into(),
                Listed::Members(members, count) => answer::members(&members, count).into(),
                Listed::MemberPage(members, count, next) => answer::member_page(&members, count, next).into(),
                Listed::Names(names, next) => answer::names(&names, next).into(),
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
