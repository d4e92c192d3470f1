# ---- what follows is the same in every bundle ----

usage() {
  cat <<'END'
usage: sh reproduce.sh [--failing [NAME] | --passing [NAME]] [--list]

Starts one configuration on 127.0.0.1, sends the kept request and says what came of it:
exit 1 "reproduced" (or "failed", for a side that should pass), exit 0 "passed", exit 125 what is missing.
NAME is the variable of a pair, as --list prints it; without options, the smallest failing configuration is started.

  PORT=18000           the port on 127.0.0.1
  READY_SECONDS=3600   how long the server may take until /health answers
  WORK=FOLDER          where the server's log is written (default: a new folder, whose name is printed)
END
}

missing() {
  echo "could not test: $1" >&2
  exit 125
}

needs_program() { command -v "$1" >/dev/null 2>&1 || missing "the program $1 is not on this machine"; }
needs_path() { [ -e "$1" ] || missing "$1 (the $2) is not here"; }
needs_variable() { [ -n "$2" ] || missing "the environment variable $1 is not set; export it, it is passed to the server"; }

# Takes every variable but the named ones out of the environment: a search gives a server its own and nothing else.
keep_only() {
  repro_kept=" $* "
  for repro_found in $(awk 'BEGIN { for (name in ENVIRON) print name }'); do
    case $repro_found in
      [0-9]* | *[!A-Za-z0-9_]*) continue ;;
    esac
    case $repro_kept in
      *" $repro_found "*) ;;
      *) command unset "$repro_found" 2>/dev/null || : ;;
    esac
  done
}

alive() { kill -0 "$SERVER" 2>/dev/null; }

# The server is asked to end, and then made to, with the processes it started where it got a session of its own.
stop_server() {
  [ -n "$SERVER" ] || return 0
  stopping=$SERVER
  SERVER=''
  kill -TERM "$stopping" 2>/dev/null || :
  left=$STOP_SECONDS
  while [ "$left" -gt 0 ] && kill -0 "$stopping" 2>/dev/null; do
    sleep 1
    left=$((left - 1))
  done
  kill -KILL "$stopping" 2>/dev/null || :
  [ -z "$OWN_SESSION" ] || kill -KILL -- "-$stopping" 2>/dev/null || :
  wait "$stopping" 2>/dev/null || :
}

on_exit() {
  code=$?
  trap - EXIT
  stop_server
  rm -f "$WORK"/answer-* "$WORK"/status-*
  exit "$code"
}

ended_by_itself() {
  ended=$SERVER
  SERVER=''
  status=0
  wait "$ended" || status=$?
  echo "the server ended by itself with status $status"
  # Its workers may have outlived it.
  [ -z "$OWN_SESSION" ] || kill -KILL -- "-$ended" 2>/dev/null || :
}

show_log() {
  echo "---- last lines of $LOG"
  tail -n 40 "$LOG"
  echo "----"
  [ -n "$ROOT" ] || return 0
  if found=$(grep -n -F -e "$ROOT" "$LOG"); then
    echo "root line as in the report: $(printf '%s\n' "$found" | head -n 1 | cut -c 1-300)"
  else
    echo "the root line of the report is not in this log: compare the two before calling it the same error"
  fi
}

# The configuration did not do what it should.
finish_failed() {
  show_log
  if [ "$EXPECT" = fail ]; then echo "reproduced: $1"; else echo "failed: $1"; fi
  exit 1
}

finish_passed() {
  echo "passed: $1"
  exit 0
}

wait_until_ready() {
  deadline=$(($(date +%s) + READY_SECONDS))
  while :; do
    code=$(curl --noproxy '*' -s -k -o /dev/null -w '%{http_code}' -m 5 "$BASE/health" || :)
    [ "$code" != 200 ] || return 0
    alive || { ended_by_itself; finish_failed "the server ended before it was ready"; }
    [ "$(date +%s)" -lt "$deadline" ] || break
    sleep 1
  done
  [ "$HANGS" != yes ] || finish_failed "not ready after $READY_SECONDS s"
  show_log
  missing "not ready after $READY_SECONDS s; give it longer with READY_SECONDS="
}

# The key of the server reaches curl through its standard input, so that no list of processes shows it.
send_one() {
  if code=$(printf '%s' "$CURL_CONFIG" | curl --noproxy '*' -K - -sS -k -o "$WORK/answer-$2" -w '%{http_code}' -m "$DEADLINE" \
    -H 'Content-Type: application/json' --data-binary "@$HERE/$1" "$BASE$REQUEST_PATH" 2>"$WORK/status-$2.err"); then
    echo "$code" >"$WORK/status-$2"
  else
    echo "broken: $(cat "$WORK/status-$2.err")" >"$WORK/status-$2"
  fi
}

# Sends REQUESTS, AT_ONCE of them in flight together; BAD becomes the number of the first that did not go well.
send_all() {
  number=0
  in_flight=0
  waiting=''
  BAD=''
  for file in $REQUESTS; do
    number=$((number + 1))
    send_one "$file" "$number" &
    waiting="$waiting $!"
    in_flight=$((in_flight + 1))
    if [ "$in_flight" -eq "$AT_ONCE" ]; then
      end_of_wave
    fi
  done
  end_of_wave
}

end_of_wave() {
  for sender in $waiting; do wait "$sender" || :; done
  waiting=''
  in_flight=0
}

judge_all() {
  number=0
  for file in $REQUESTS; do
    number=$((number + 1))
    status=$(cat "$WORK/status-$number")
    echo "$file: HTTP $status"
    if [ "$status" != "$EXPECTED_STATUS" ] && [ -z "$BAD" ]; then BAD=$number; fi
  done
  shown=${BAD:-1}
  echo "---- answer $shown, its first 2000 bytes"
  if [ -f "$WORK/answer-$shown" ]; then head -c 2000 "$WORK/answer-$shown"; fi
  echo
  echo "----"
}

start_and_judge() {
  echo "$TITLE"
  [ -n "$REQUESTS" ] || [ "$NEEDS_REQUEST" = no ] ||
    missing "the request of this trial was not kept; REPORT.md names the command that builds it again"
  curl --noproxy '*' -s -k -o /dev/null -m 5 "$BASE/" && port=taken || port=$?
  # 7 is curl's word for a refused connection; anything else is an answer.
  [ "$port" = 7 ] || missing "port $PORT of 127.0.0.1 is in use; choose another one with PORT="
  WORK=${WORK:-$(mktemp -d)}
  mkdir -p "$WORK"
  LOG=$WORK/server.log
  : >"$LOG"
  echo "log: $LOG"
  trap on_exit EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start >"$LOG" 2>&1 </dev/null &
  SERVER=$!
  wait_until_ready
  echo "ready"
  if [ -z "$REQUESTS" ]; then
    show_log
    finish_passed "the server became ready; the request of this trial was not kept, so none was sent"
  fi
  send_all
  judge_all
  # An engine that dies takes a moment to take its server along.
  sleep 1
  if ! alive; then
    ended_by_itself
    finish_failed "the server died under the request"
  fi
  [ -z "$BAD" ] || finish_failed "answer $BAD: HTTP $(cat "$WORK/status-$BAD"), expected $EXPECTED_STATUS"
  if [ "$JUDGED_BY" = text ]; then
    echo "undecided: the status is as expected, but this fault shows in the text of the answer above: $FAULT" >&2
    exit 10
  fi
  show_log
  finish_passed "HTTP $EXPECTED_STATUS, and the server is alive"
}

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
PORT=${PORT:-18000}
READY_SECONDS=${READY_SECONDS:-3600}
STOP_SECONDS=${STOP_SECONDS:-15}
SERVER=''
BAD=''
OWN_SESSION=''
CURL_CONFIG=''
if command -v setsid >/dev/null 2>&1; then OWN_SESSION=setsid; fi

mode=failing
name=''
while [ "$#" -gt 0 ]; do
  case $1 in
    --failing | --passing)
      mode=${1#--}
      if [ "$#" -gt 1 ]; then
        case $2 in
          -*) if is_name "$2"; then name=$2; shift; fi ;;
          *) name=$2; shift ;;
        esac
      fi
      ;;
    --list) list; exit 0 ;;
    -h | --help) usage; list; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
needs_program curl
choose "$mode:$name"
start_and_judge
