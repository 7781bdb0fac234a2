mod publish;
