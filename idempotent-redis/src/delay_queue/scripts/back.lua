-- Returns a delivery to the queue. Reply: 0, the delivery is no longer held; 1, done; 2, no retries left,
-- dead-lettered. Modes: `r`, a counted retry; `i`, a counted retry at once, ranked by the remaining retries; `a`, a
-- retry with the given counters, which is counted by the consumer; `g`, returned unchanged.
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
