-- Returns {ready, waiting, in flight, dead, µs for which the oldest ready message has been ready, or -1, now}.
local passed = '(' .. text(now)
local over, late = call('ZCOUNT', held, '-inf', passed), call('ZCOUNT', due, '-inf', passed)
local oldest
local function since(at) if at and (not oldest or at < oldest) then oldest = at end end
since(tonumber(call('ZRANGE', held, 0, 0, 'WITHSCORES')[2]))
since(tonumber(call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]))
-- The first member of each priority was sent first. There are few priorities.
local from = '-inf'
for _ = 1, 256 do
  local first = call('ZRANGEBYSCORE', rank, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] then break end
  since(tonumber(string.sub(first[1], 2), 16))
  from = '(' .. first[2]
end
return {late + over + call('ZCARD', rank), call('ZCARD', due) - late, call('ZCARD', held) - over, call('ZCARD', dead),
  oldest and oldest < now and text(now - oldest) or '-1', text(now)}
