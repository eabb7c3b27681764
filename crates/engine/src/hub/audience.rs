//! Visits the subscribers that would get a publication, a slice at a time. Nothing is delivered.

use touchline_protocol::publication::Tags;

use super::delivery::DeliveryForm;
use super::local::LocalSubscribers;
use super::subscriber::WANTS_DELTA;

/// How far the subscribers of a channel have been visited.
#[derive(Debug, Clone, Copy, Default)]
pub struct AudienceCursor {
    /// The index of the group: 0 = the subscribers without a filter, then those of each filter.
    group: usize,
    /// The index of the subscriber within the group.
    position: usize,
}

impl LocalSubscribers {
    /// See [`super::Hub::visit_audience`].
    pub(super) fn visit_some(
        &self,
        cursor: &mut AudienceCursor,
        most: usize,
        tags: &Tags,
        mut to: impl FnMut(u32, Option<DeliveryForm>),
    ) -> bool {
        let mut left = most;
        loop {
            let (members, fits) = match cursor.group.checked_sub(1) {
                None => (&self.members, true),
                Some(index) => match self.filtered.as_ref().and_then(|filtered| filtered.groups.get(index)) {
                    None => return false,
                    // Evaluating a filter costs about as much as visiting a subscriber.
                    Some((filter, members)) => {
                        left = left.saturating_sub(1);
                        (members, filter.as_ref().is_some_and(|filter| filter.fits(tags)))
                    }
                },
            };
            let rest = members.get(cursor.position..).unwrap_or_default();
            // At least one is visited: the filter may have used the last unit.
            let taken = rest.len().min(left.max(1));
            for member in &rest[..taken] {
                let form = if member.slot & WANTS_DELTA == 0 { DeliveryForm::Plain } else { DeliveryForm::Whole };
                to(member.slot(), fits.then_some(form));
            }
            left = left.saturating_sub(taken);
            cursor.position += taken;
            if taken < rest.len() {
                return true;
            }
            *cursor = AudienceCursor { group: cursor.group + 1, position: 0 };
            if left == 0 {
                return true;
            }
        }
    }
}
