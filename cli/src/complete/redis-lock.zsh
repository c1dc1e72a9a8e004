#compdef redis-lock
# Completions of redis-lock for zsh: redis-lock itself says what comes next.
_redis_lock() {
    local -a out names
    out=("${(@f)$(${~words[1]} complete -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    case $out[1] in
    :files) _files ;;
    :command*)
        local -i before=${out[1]#:command }
        shift $before words
        ((CURRENT -= before))
        _normal
        ;;
    ?*)
        names=("${(@)out%%$'\t'*}")
        out=("${(@)out/$'\t'/  -- }")
        compadd -l -d out -a names
        ;;
    esac
}
if [[ $funcstack[1] = _redis-lock ]]; then _redis_lock "$@"; else compdef _redis_lock redis-lock; fi
