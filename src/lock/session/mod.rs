//! Holds that are bound to a connection (`SESSION`): the bindings, their renewals, and their ends.

pub(crate) mod bindings;
pub(crate) mod expiry;
mod renewals;
pub(crate) mod rule;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::lock::{BoundRef, KeyRef, Mode, Now, Sessions, Token, UserId};

    #[test]
    fn releases_that_were_refused_come_after_all_others() {
        let now = Now::at_mono(0);
        let mut sessions = Sessions::default();
        let names = ["a", "b", "c", "d"];
        for (client, name) in (1..).zip(names) {
            let key = KeyRef::lock(0, name.as_bytes());
            let what = BoundRef::lock(Mode::Exclusive, key, b"o");
            sessions.bind(
                what,
                (client, UserId::UNKNOWN),
                Token::new(client).unwrap(),
                now,
            );
        }
        for client in 1..=3 {
            sessions.end(client);
        }
        let next = |sessions: &mut Sessions| sessions.next_ended().unwrap();
        let refused = [next(&mut sessions), next(&mut sessions)];
        sessions.put_off_ended(&refused);
        sessions.end(4);
        let order: Vec<_> = std::iter::from_fn(|| sessions.next_ended())
            .map(|bound| bound.key.as_ref().name.to_vec())
            .collect();
        assert_eq!(order, [b"c", b"d", b"a", b"b"]);
    }
}
