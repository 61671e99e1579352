"""The two bash programs that run inside a container. They need bash >= 4.2 and nothing else.

`INIT` is process 1. It holds no state that an agent could spoil and never forks after its first
line, so it works when the process limit is used up; signals from inside its own namespace cannot
end it. It wakes five times a second because bash collects orphans only between two builtins, and
uncollected ones count towards the limit.

`COMMAND` runs one command. It arrives on the standard input of an exec'd bash and is followed by
one line `nonce size`, then by the command itself: so the command may have any length, shows in no
process list but its own, and no output can be lost between the HTTP headers of the exec and its
first byte, since nothing is printed before the harness has read the headers and answered.

What an observer of the two output streams sees (`N` is the nonce, a random word per command):

    stdout   N <the command's bytes> N <exit code> <processes killed for memory so far>\\n
    stderr     <the command's bytes> N

The streams are the very pipes that the command writes to. Whatever it wrote before it ended stands
before the second `N`; whatever its background children write later stands behind it.
"""

from __future__ import annotations

END_NEWEST = "SIGUSR1"
"""Signal to process 1: kill what has started since the newest command began, keep the rest."""

END_ALL = "SIGUSR2"
"""Signal to process 1: kill every other process of the container."""

INIT = """\
# Process 1 of this sandbox: collects orphans, ends processes when the harness asks for it.
trap '' HUP INT QUIT ILL TRAP ABRT BUS FPE SEGV PIPE ALRM TERM XCPU XFSZ VTALRM PROF IO SYS
trap 'todo=end_newest; echo >&$idle' USR1  # the echo ends the read at the bottom
trap 'todo=end_all; echo >&$idle' USR2
end_all() { kill -9 -1; }
fields() { local s; IFS= read -r -d '' s; f=(${s##*) }); [[ ${f-} ]]; }
end_newest() {
  local d f i newest since=0 stopped=' '
  for d in /proc/[1-9]*; do  # an exec is the only kind of process whose parent is 0
    fields <$d/stat || continue
    [[ $f != [Tt] ]] || stopped+="${d#/proc/} "
    # (what is just being collected shows no parent either, but no group)
    (( ${d#/proc/} == 1 || f[1] || f[2] < 0 || f[19] <= since )) || { since=${f[19]} newest=$d; }
  done
  for i in {1..50}; do
    kill -STOP -1  # atomic: nobody forks again, but a fork under way still ends
    end_young || end_young || break  # one look can be older than the end of the last fork
    read -r -t 0.01 -u $idle
  done
  for d in /proc/[1-9]*; do
    [[ $d == /proc/1 || $d == "$newest" ]] || ! fields <$d/stat && continue
    (( f[19] >= since )) || [[ $stopped == *" ${d#/proc/} "* ]] || kill -CONT ${d#/proc/}
  done
  kill -9 ${newest#/proc/}  # the last to go: the end of its output says that all is done
}
end_young() {  # true while there were some; an orphaned group of stopped processes is continued
  local found=1
  for d in /proc/[1-9]*; do
    [[ $d == /proc/1 || $d == "$newest" ]] || ! fields <$d/stat && continue
    (( f[19] >= since )) && [[ $f != Z || ${f[1]} == 1 ]] || continue
    kill -9 ${d#/proc/}
    found=0
  done
  return $found
}
exec 2>/dev/null {idle}<> <(:)
while :; do read -r -t 0.2 -u $idle; now=$todo todo=; $now; done
"""

ARGUMENT_LIMIT = 131072
"""Bytes that one argument of a program may not reach (Linux, 4 KiB pages)."""


def long_command(fd: int) -> str:
    """What `bash -c` is given instead of a command that is too long: it stands on `fd`."""
    return f'IFS= read -r -d "" -u {fd}; exec {fd}<&-; eval "$REPLY"'


COMMAND = """\
{
exec 3>&2 2>/dev/null || { echo "nothing can be written to /dev/null"; exit 1; }
for d in /sys/fs/cgroup /sys/fs/cgroup/pids; do  # bash would try to fork for 15 seconds
  read -r now <$d/pids.current && read -r most <$d/pids.max && [[ $most != max ]] || continue
  (( now < most )) || { echo "the limit of $most processes is used up"; exit 1; }
done
trap : HUP INT QUIT TERM PIPE  # handlers, unlike '', are not handed down to the command
exec {idle}<> <(:) || { echo "there is no pipe in /dev/fd"; exit 1; }
killed() {
  local f k v
  for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
    [[ -r $f ]] || continue
    while read -r k v; do [[ $k != oom_kill ]] || { kills=$v; return; }; done <$f
  done
}
held() {
  local f
  for f in /proc/[1-9]*/fd/*; do
    [[ $f != /proc/$$/* && -L $f ]] || continue
    [[ $f -ef /proc/$$/fd/1 || $f -ef /proc/$$/fd/3 || ! -e $f ]] && return
  done
  return 1
}
say() {  # some programs make the pipes of their output, which are ours too, refuse when full
  local i
  for i in {1..1000}; do
    printf %s "$*" && return
    read -r -t 0.01 -u $idle
  done
}
read -r nonce size && LC_ALL=C IFS= read -r -N $size command || exit 1
(
  cd /workspace || { mkdir -p /workspace; cd /workspace; } ||
    echo '[sandbox] /workspace is no folder: the command was run in /' >&3
  unset OLDPWD
  echo 500 >/proc/self/oom_score_adj  # out of memory: rather the command than what watches over it
  printf %s $nonce
  (( size < @LIMIT@ )) && exec bash -c "$command" 2>&3 3>&-
  exec 9< <(printf %s "$command")
  exec bash -c '@LONG@' 2>&3 3>&-
) </dev/null {idle}>&-
code=$?
kills=0
killed
say $nonce $code $kills$'\n'  # one write: nothing of a background child gets into it
say $nonce >&3
pause=1
while held; do read -r -t $pause -u $idle; (( pause = pause < 8 ? 2 * pause : 8 )); done
exit
}
""".replace("@LIMIT@", str(ARGUMENT_LIMIT)).replace("@LONG@", long_command(9))
