DROP FUNCTION touchline.trim_facts(bigint);
DROP FUNCTION touchline.change_fact(text, text, text, bigint);
DROP TABLE touchline.fact_head;
DROP TABLE touchline.fact;
