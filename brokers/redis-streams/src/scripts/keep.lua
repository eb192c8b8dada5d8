-- Resets the idle time of the entries that this consumer still holds. Returns their number.
if redis.replicate_commands then redis.replicate_commands() end
local stream, group, me, kept = KEYS[1], ARGV[1], ARGV[2], 0
for at = 3, #ARGV do
  local pending = redis.call('XPENDING', stream, group, ARGV[at], ARGV[at], 1)[1]
  if pending and pending[2] == me then
    redis.call('XCLAIM', stream, group, me, 0, ARGV[at], 'JUSTID')
    kept = kept + 1
  end
end
return kept
