# Completions of redis-lock for bash: redis-lock itself says what comes next.
_redis_lock() {
    local line=${COMP_LINE:0:COMP_POINT} words out cur before joined= i=0
    # Words as they are typed: those of bash end at colons, too.
    read -a words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur=${words[-1]}
    mapfile -t out < <("${words[0]/#\~/$HOME}" complete -- "${words[@]}" 2>/dev/null)
    case ${out[0]} in
    :files)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        ;;
    :command*)
        before=("${words[@]:0:${out[0]#:command }}")
        before=$(printf %s "${before[@]}")
        while ((${#joined} < ${#before})); do joined+=${COMP_WORDS[i++]}; done
        if declare -F _command_offset >/dev/null; then
            _command_offset $i
        else
            compopt -o filenames
            ((i == COMP_CWORD)) && mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur")
        fi
        ;;
    ?*)
        # Only what follows the last colon is replaced.
        out=("${out[@]%%$'\t'*}")
        out=("${out[@]#"${cur%"${cur##*[:=]}"}"}")
        mapfile -t COMPREPLY < <(printf '%q\n' "${out[@]}")
        ;;
    esac
}
complete -F _redis_lock redis-lock
