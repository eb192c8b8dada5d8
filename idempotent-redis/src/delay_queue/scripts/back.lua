-- Puts a delivery back. 0: it is not this delivery's any more; 1: done; 2: its retries are used up, it is put aside.
-- How: `r` a retry that counts; `i` likewise, and at once, ranking by the retries that are left; `a` a retry whose marks
-- are given, which counts elsewhere; `g` given back as it was.
although_full()
local m, how, delay, most = ARGV[1], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local s = mine(m, ARGV[2])
if not s then return 0 end
if how == 'r' or how == 'i' then
  s[2], s[3], s[6] = s[2] + 1, s[3] + 1, ARGV[8]
  if s[3] > most then
    exhausted(m, s)
    return 2
  end
end
if how == 'a' then s[2], s[5], s[6] = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] end
write(m, s)
local at = now + delay - 1
if string.sub(m, 1, 1) == 'p' and delay == 0 then
  place(m, s, most)
elseif how == 'i' then
  at = left(s, most)
  call('ZADD', due, at, m)
else
  call('ZADD', due, text(at), m)
end
call('ZREM', held, m)
wake(at)
return 1
