-- WHY: a migration may need a lock that is not taken at the beginning.
LOCK TABLE public.theirs IN ACCESS EXCLUSIVE MODE;
