use super::*;

const NOON: u64 = 1_700_000_000_000_000;

fn minted(tokens: &mut Tokens, now_us: u64) -> Minted {
    tokens.mint(0, 0, 0, now_us).unwrap()
}

#[test]
fn follows_the_clock_and_never_repeats() {
    let mut tokens = Tokens::default();
    assert_eq!(minted(&mut tokens, NOON).token.get(), NOON);
    assert_eq!(minted(&mut tokens, NOON).token.get(), NOON + 1);
    assert_eq!(minted(&mut tokens, NOON - 5).token.get(), NOON + 2);
    assert_eq!(minted(&mut tokens, NOON + 9).token.get(), NOON + 9);
}

#[test]
fn the_horizon_is_written_once_in_half_a_span() {
    let mut tokens = Tokens::default();
    assert_eq!(minted(&mut tokens, NOON).horizon, Some(NOON + SPAN_US));
    let half = NOON + SPAN_US / 2;
    assert_eq!(minted(&mut tokens, half - 10).horizon, None);
    assert_eq!(
        minted(&mut tokens, half + 10).horizon,
        Some(half + 10 + SPAN_US)
    );
}

#[test]
fn after_a_restart_with_the_clock_set_back_tokens_start_above_the_horizon() {
    let mut before = Tokens::default();
    let horizon = minted(&mut before, NOON).horizon.unwrap();
    let last = minted(&mut before, NOON + 1_000).token;
    let mut after = Tokens::default();
    after.learn(0, horizon, NOON);
    let first = minted(&mut after, NOON - SPAN_US);
    assert!(first.token > last);
    assert_eq!(first.token.get(), horizon + 1);
    assert_eq!(first.horizon, Some(horizon + 1 + SPAN_TOKENS));
}

#[test]
fn two_processes_that_start_from_one_horizon_follow_the_clock() {
    let mut before = Tokens::default();
    let horizon = minted(&mut before, NOON).horizon.unwrap();
    let first_of = |now_us| {
        let mut tokens = Tokens::default();
        tokens.learn(0, horizon, NOON);
        minted(&mut tokens, now_us).token
    };
    assert!(first_of(NOON + 1_000_000) < first_of(NOON + 2_000_000));
}

#[test]
fn a_crash_loop_uses_seconds_of_tokens_not_hours() {
    let mut horizon = 0;
    for _ in 0..1_000 {
        let mut tokens = Tokens::default();
        tokens.learn(0, horizon, NOON);
        horizon = minted(&mut tokens, NOON).horizon.unwrap();
    }
    assert!(horizon < NOON + SPAN_US + 1_000 * (SPAN_TOKENS + 1));
}

#[test]
fn reading_the_own_horizon_again_does_not_raise_tokens() {
    let mut tokens = Tokens::default();
    let horizon = minted(&mut tokens, NOON).horizon.unwrap();
    tokens.learn(0, horizon, NOON);
    assert_eq!(minted(&mut tokens, NOON + 7).token.get(), NOON + 7);
    tokens.learn(0, horizon + 50, NOON);
    assert_eq!(minted(&mut tokens, NOON + 9).token.get(), horizon + 51);
}

#[test]
fn finding_the_own_horizon_after_forget_does_not_raise_tokens() {
    let mut tokens = Tokens::default();
    let horizon = minted(&mut tokens, NOON).horizon.unwrap();
    tokens.forget();
    assert!(!tokens.knows(0));
    tokens.learn(0, horizon, NOON);
    assert!(tokens.knows(0));
    let next = minted(&mut tokens, NOON + 7);
    assert_eq!((next.token.get(), next.horizon), (NOON + 7, None));
}

#[test]
fn a_flushed_horizon_is_written_again_and_tokens_continue() {
    let mut tokens = Tokens::default();
    let first = minted(&mut tokens, NOON).token;
    tokens.forget();
    assert!(!tokens.knows(0));
    tokens.learn(0, 0, NOON);
    let second = minted(&mut tokens, NOON - 50);
    assert!(second.token > first && second.horizon.is_some());
}

#[test]
fn an_observed_token_is_surpassed_and_needs_a_horizon_beyond_it() {
    let mut tokens = Tokens::default();
    minted(&mut tokens, NOON);
    tokens.observe(0, Token::new(NOON + SPAN_US).unwrap(), NOON);
    let next = minted(&mut tokens, NOON);
    assert_eq!(next.token.get(), NOON + SPAN_US + 1);
    assert!(next.horizon.unwrap() > next.token.get());
    tokens.observe(0, Token::new(5).unwrap(), NOON);
    assert!(minted(&mut tokens, NOON).token > next.token);
}

#[test]
fn a_lost_horizon_is_stored_again_above_all_tokens() {
    let mut tokens = Tokens::default();
    tokens.learn(0, 0, NOON);
    tokens.lose(0);
    assert!(!tokens.has_lost(), "there was none");
    tokens.learn(0, NOON + SPAN_US, NOON);
    let last = minted(&mut tokens, NOON).token.get();
    tokens.lose(0);
    assert_eq!(tokens.pop_lost(), Some(0));
    assert!(tokens.is_uncovered(0) && !tokens.has_lost());
    assert!(tokens.reserve(0, NOON) > last && !tokens.is_uncovered(0));
    assert_eq!(minted(&mut tokens, NOON).horizon, None);
    tokens.lose(0);
    assert!(minted(&mut tokens, NOON).horizon.is_some());
    assert!(!tokens.has_lost(), "the grant stored it");
}

#[test]
fn after_a_demotion_the_own_horizon_counts_as_foreign() {
    let mut tokens = Tokens::default();
    let horizon = minted(&mut tokens, NOON).horizon.unwrap();
    tokens.disown();
    tokens.learn(0, horizon, NOON);
    assert!(minted(&mut tokens, NOON + 5).token.get() > horizon);
}

#[test]
fn a_domain_does_not_raise_the_tokens_of_another() {
    let mut tokens = Tokens::default();
    tokens.learn(1, NOON + SPAN_US, NOON);
    assert!(tokens.mint(1, 0, 0, NOON).unwrap().token.get() > NOON + SPAN_US);
    assert_eq!(tokens.mint(2, 0, 0, NOON).unwrap().token.get(), NOON);
}

#[test]
fn tokens_are_above_the_numbers_in_the_lock_data() {
    let mut tokens = Tokens::default();
    let token = |minted: Result<Minted, NoToken>| minted.unwrap().token.get();
    assert_eq!(token(tokens.mint(0, NOON + 5, 0, NOON)), NOON + 6);
    assert_eq!(token(tokens.mint(0, 0, NOON + 8, NOON)), NOON + 9);
}

/// A century and a second: further ahead than any plausible horizon.
const FORGED: u64 = NOON + PLAUSIBLE_AHEAD_US + 1_000_000;

#[test]
fn an_implausible_token_or_counter_is_refused_and_does_not_affect_other_locks() {
    let mut tokens = Tokens::default();
    let beyond = NOON + SPAN_US + 1;
    for forged in [beyond, FORGED, Token::MAX.get(), u64::MAX] {
        let observed = Token::new(forged).is_some_and(|token| tokens.observe(0, token, NOON));
        assert!(!observed);
        for more in [0, 5] {
            let token = tokens.can_mint(0, forged, 0, NOON, more);
            assert_eq!(token, Err(NoToken::TokenAhead));
            let counter = tokens.can_mint(0, 0, forged, NOON, more);
            assert_eq!(counter, Err(NoToken::CounterAhead));
        }
        assert_eq!(tokens.mint(0, forged, 0, NOON), Err(NoToken::TokenAhead));
        assert_eq!(tokens.mint(0, 0, forged, NOON), Err(NoToken::CounterAhead));
    }
    assert_eq!(minted(&mut tokens, NOON).token.get(), NOON);
}

#[test]
fn forged_tokens_do_not_add_up() {
    let mut tokens = Tokens::default();
    let mut horizon = minted(&mut tokens, NOON).horizon.unwrap();
    for grants in 1..100 {
        assert!(tokens.mint(0, horizon + 1, 0, NOON).is_err());
        let next = tokens.mint(0, NOON + SPAN_US, 0, NOON).unwrap();
        assert_eq!(next.token.get(), NOON + SPAN_US + grants);
        horizon = next.horizon.unwrap_or(horizon);
    }
}

#[test]
fn a_token_far_ahead_is_believed_below_an_accepted_horizon() {
    let mut tokens = Tokens::default();
    let horizon = NOON + 50 * 366 * 24 * SPAN_US;
    tokens.learn(0, horizon, NOON);
    assert!(tokens.observe(0, Token::new(horizon - 9).unwrap(), NOON));
    assert!(!tokens.observe(0, Token::new(horizon + 1).unwrap(), NOON));
    assert_eq!(minted(&mut tokens, NOON).token.get(), horizon + 1);
}

#[test]
fn an_implausible_horizon_is_reported_once_and_overwritten() {
    for forged in [FORGED, Token::MAX.get(), u64::MAX] {
        let mut tokens = Tokens::default();
        assert!(tokens.learn(0, forged, NOON), "news");
        assert!(tokens.knows(0) && tokens.wants_horizon(0, NOON));
        assert!(!tokens.learn(0, forged, NOON), "the same again");
        assert!(tokens.learn(0, forged - 1, NOON), "another one");
        let first = minted(&mut tokens, NOON);
        assert_eq!(
            (first.token.get(), first.horizon),
            (NOON, Some(NOON + SPAN_US))
        );
        assert!(tokens.learn(0, forged - 1, NOON), "forged again");
        let next = minted(&mut tokens, NOON);
        assert_eq!(next.token.get(), NOON + 1);
        assert!(next.horizon.is_some());
    }
}

#[test]
fn a_horizon_from_before_the_clock_fell_back_to_1970_is_accepted() {
    let mut before = Tokens::default();
    let horizon = minted(&mut before, NOON).horizon.unwrap();
    let mut after = Tokens::default();
    assert!(!after.learn(0, horizon, 1));
    assert!(minted(&mut after, 1).token.get() > horizon);
}

#[test]
fn the_furthest_plausible_horizon_leaves_numbers_for_a_century() {
    let mut tokens = Tokens::default();
    let furthest = NOON + PLAUSIBLE_AHEAD_US;
    assert!(!tokens.learn(0, furthest, NOON));
    let next = minted(&mut tokens, NOON);
    assert!(next.token.get() > furthest);
    assert!(Token::MAX.get() - next.token.get() > PLAUSIBLE_AHEAD_US);
}

#[test]
fn tokens_stay_above_a_counter_ahead_of_the_clock_after_its_deletion() {
    let mut tokens = Tokens::default();
    let far = NOON + SPAN_US;
    let led = tokens.mint(0, 0, far, NOON).unwrap();
    assert_eq!(led.token.get(), far + 1);
    assert!(led.horizon > Some(far + 1), "other processes know of it");
    assert_eq!(minted(&mut tokens, NOON).token.get(), far + 2);
}

#[test]
fn a_lowered_horizon_is_stored_again() {
    let mut tokens = Tokens::default();
    let horizon = minted(&mut tokens, NOON).horizon.unwrap();
    for (found, covers) in [(1, false), (FORGED, false), (horizon + 9, true)] {
        tokens.lose(0);
        assert_eq!(tokens.pop_lost(), Some(0));
        tokens.learn(0, found, NOON);
        assert_eq!(tokens.is_uncovered(0), !covers, "{found}");
        if !covers {
            tokens.reserve(0, NOON);
        }
    }
}

#[test]
fn exhausted_tokens_are_an_error_not_a_wrap() {
    let mut tokens = Tokens::default();
    let last = minted(&mut tokens, Token::MAX.get());
    assert_eq!(
        (last.token, last.horizon),
        (Token::MAX, Some(Token::MAX.get()))
    );
    assert_eq!(tokens.mint(0, 0, 0, NOON), Err(NoToken::Exhausted));
}

#[test]
fn a_horizon_that_could_not_be_stored_is_stored_with_the_next_token() {
    let mut tokens = Tokens::default();
    minted(&mut tokens, NOON);
    assert!(!tokens.is_uncovered(0) && !tokens.has_lost());
    tokens.put_off(0);
    assert!(tokens.is_uncovered(0) && tokens.has_lost());
    assert!(minted(&mut tokens, NOON).horizon.is_some());
    assert!(!tokens.is_uncovered(0) && tokens.pop_lost().is_none());
    tokens.put_off(0);
    assert_eq!((tokens.pop_lost(), tokens.pop_lost()), (Some(0), None));
    tokens.put_off(0);
    tokens.forget();
    assert!(!tokens.has_lost(), "the data was replaced");
}

#[test]
fn a_horizon_in_doubt_is_read_again() {
    let mut tokens = Tokens::default();
    tokens.learn(0, 0, NOON);
    assert!(tokens.knows(0));
    tokens.doubt(0);
    assert!(!tokens.knows(0));
}

#[test]
fn a_horizon_key_of_another_type_is_named_in_the_error() {
    let mut tokens = Tokens::default();
    assert_eq!(tokens.no_grant(), LockError::TryAgain);
    tokens.set_foreign(true);
    assert_eq!(tokens.no_grant(), LockError::HorizonForeign);
    tokens.set_foreign(false);
    assert_eq!(tokens.no_grant(), LockError::TryAgain);
}
